"""The driver's side of an HTTP sink: grants permits to send requests, and counts results, for all tasks of a job."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from dataclasses import dataclass
from statistics import median_high
from typing import TYPE_CHECKING

from penstock.base.channel import ChannelServer
from penstock.connectors.http.driver_link import NO, YES, DriverAddress, Message, MessageKind
from penstock.connectors.http.rate_limit import Permit, RateWindow
from penstock.connectors.http.rows import FirstRows

if TYPE_CHECKING:
    from penstock.base.channel import TaskChannel

log = logging.getLogger("penstock.sinks")

_MAX_DURATIONS = 1000  # of the latest requests, for their median
_POLL_SECONDS = 1.0
"""Seconds between checks for a rejected row while a task waits for a permit; a service may request a long wait."""


@dataclass(slots=True)
class Figures:
    """The counts of all tasks of a sink, including retried tasks.

    `requests` counts all attempts, `retried` attempts after the first, `rows` accepted rows, `dead` dead letters, and
    `retried_tasks` repeated starts of tasks. `began` and `ended` are the monotonic times of the first and last permit.
    """

    requests: int = 0
    retried: int = 0
    rows: int = 0
    dead: int = 0
    retried_tasks: int = 0
    began: float = 0.0
    ended: float = 0.0

    @property
    def rate(self) -> float | None:
        """The average requests per second; None for fewer than two requests."""
        return (self.requests - 1) / (self.ended - self.began) if self.ended > self.began else None


class DriverSide:
    """Server for the tasks of a sink; it listens on the address `bind`, and tasks connect to it at `host`.

    `rate` is the maximum requests per second, None for no limit.
    """

    def __init__(self, bind: str, host: str, rate: float | None) -> None:
        self.figures = Figures()
        self.rejection = ""
        """The reason of the first rejection; empty if there is none, or if rejected rows are stored as dead letters."""
        self.durations: deque[float] = deque(maxlen=_MAX_DURATIONS)
        """The durations of the latest requests in seconds."""
        self.first_rows = FirstRows()
        """The rows that a single task sent first, to measure the duration of requests."""
        self._window = None if rate is None else RateWindow(rate)
        self._paused_until = 0.0  # monotonic seconds
        self._task_starts: Counter[int] = Counter()
        self._permit_queue = asyncio.Lock()  # tasks get permits in the order in which they ask
        self._server = ChannelServer("penstock-requests", bind, self._serve)
        self.address = DriverAddress(host, self._server.port, self._server.secret)

    @property
    def median_seconds(self) -> float | None:
        """The upper median of the latest durations of requests in seconds; None if no request has ended."""
        return median_high(self.durations) if self.durations else None

    def close(self) -> None:
        """Stop the server; tasks that are still sending fail."""
        self._server.close()

    async def _serve(self, channel: TaskChannel) -> None:
        """Reply to the messages on a connection of a task until the task closes the connection."""
        permit: Permit | None = None
        skipped: Counter[str] = Counter()  # the rows that this attempt of a task skips, by digest
        try:
            while True:
                message = Message.from_bytes(await channel.receive())
                if message.kind is MessageKind.PERMIT:
                    permit = await self._permit(channel, is_retry=message.number > 1)  # the number of the attempt
                    channel.send(YES if permit else NO)
                elif message.kind is MessageKind.SHOULD_SKIP:
                    partition, digest = int(message.number), message.texts[0]
                    channel.send(YES if self.first_rows.claim(partition, skipped, digest) else NO)
                elif message.kind is MessageKind.REQUEST_ENDED:
                    self._finish_request(permit)
                    self.durations.append(message.number)  # in seconds
                elif message.kind is MessageKind.PAUSE:
                    self._paused_until = max(self._paused_until, time.monotonic() + message.number)  # in seconds
                else:
                    self._count(message)
                    channel.send(YES)
        except ValueError:
            log.exception("a message of a task cannot be read, so the task fails")
        finally:
            self._finish_request(permit)

    async def _permit(self, channel: TaskChannel, *, is_retry: bool) -> Permit | None:
        """Wait until a request may be sent, in the order of the calls; return None if the task has to stop."""
        async with self._permit_queue:
            if channel.has_ended:  # the task died while it waited
                return None
            while (wait := self._free_at(now := time.monotonic()) - now) > 0 and not self.rejection:  # noqa: ASYNC110
                await asyncio.sleep(min(wait, _POLL_SECONDS))
            permit = Permit(now, 0) if self._window is None else self._window.take(now)
        if self.rejection:
            return None
        figures = self.figures
        figures.began = figures.began or permit.at
        figures.ended = permit.at
        figures.requests += 1
        figures.retried += is_retry
        return permit

    def _free_at(self, now: float) -> float:
        """Return the earliest time of the next permit; `now` if a permit can be granted now."""
        return max(self._paused_until, now if self._window is None else self._window.free_at(now))

    def _finish_request(self, permit: Permit | None) -> None:
        if permit is not None and self._window is not None:
            self._window.finish(permit, time.monotonic())

    def _count(self, message: Message) -> None:
        number, figures = int(message.number), self.figures
        match message.kind:
            case MessageKind.BEGIN:
                partition = number
                figures.retried_tasks += self._task_starts[partition] > 0
                self._task_starts[partition] += 1
            case MessageKind.DONE:  # `number` is the number of rows, as for dead letters
                figures.rows += number
            case MessageKind.DEAD:
                figures.dead += number
            case MessageKind.REJECTED:
                self.rejection = self.rejection or message.texts[0]
