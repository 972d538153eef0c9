"""The driver's side of an HTTP sink: grants permits to all tasks of a job, and counts results."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from dataclasses import dataclass
from statistics import median_high
from typing import TYPE_CHECKING

from penstock.base.channel import ChannelServer
from penstock.connectors.http.driver_link import NO, YES, DriverAddress, Kind, Message
from penstock.connectors.http.pace import Permit, RateWindow
from penstock.connectors.http.rows import FirstRows

if TYPE_CHECKING:
    from penstock.base.channel import TaskChannel

log = logging.getLogger("penstock.sinks")

_MAX_DURATIONS = 1000
_POLL_SECONDS = 1.0
"""The interval at which a wait for a permit checks whether the job fails, as a service may request minutes."""


@dataclass(slots=True)
class Figures:
    """The counts of a sink's tasks, repeated tasks included.

    `retried` are those of the requests that were retries; `rows` and `dead` are the rows that the service has accepted
    and rejected. `began` and `ended` are the times of the first and the last permit.
    """

    requests: int = 0
    retried: int = 0
    rows: int = 0
    dead: int = 0
    repeated_tasks: int = 0
    began: float = 0.0
    ended: float = 0.0

    @property
    def rate(self) -> float | None:
        """The average requests per second; None for fewer than two requests."""
        return (self.requests - 1) / (self.ended - self.began) if self.ended > self.began else None


class DriverSide:
    """Server for the tasks of a sink, which listens on `bind`; tasks connect to `host`.

    `rate` is the maximum requests per second, None for no limit.
    """

    def __init__(self, bind: str, host: str, rate: float | None) -> None:
        self.figures = Figures()
        self.refused = ""
        """The reason of the first rejected row if there are no dead letters, else empty."""
        self.times: deque[float] = deque(maxlen=_MAX_DURATIONS)
        """The durations of the latest requests in seconds."""
        self.first = FirstRows()
        """The rows that were sent first, to measure requests."""
        self._window = None if rate is None else RateWindow(rate)
        self._paused_until = 0.0
        self._task_starts: Counter[int] = Counter()
        self._turn = asyncio.Lock()
        self._server = ChannelServer("penstock-requests", bind, self._serve)
        self.address = DriverAddress(host, self._server.port, self._server.secret)

    @property
    def median_seconds(self) -> float | None:
        """The upper median of the durations of requests, None if no request has ended."""
        return median_high(self.times) if self.times else None

    def close(self) -> None:
        """Stop the server; tasks that are still sending fail."""
        self._server.close()

    async def _serve(self, channel: TaskChannel) -> None:
        """Reply to the messages of a task until it disconnects."""
        permit: Permit | None = None
        claimed: Counter[str] = Counter()
        try:
            while True:
                message = Message.from_bytes(await channel.receive())
                if message.kind is Kind.PERMIT:
                    permit = await self._permit(channel, is_retry=message.number > 1)
                    channel.send(YES if permit else NO)
                elif message.kind is Kind.WAS_SENT:
                    channel.send(YES if self.first.claim(int(message.number), claimed, message.texts[0]) else NO)
                elif message.kind is Kind.ANSWERED:
                    self._finish_request(permit)
                    self.times.append(message.number)
                elif message.kind is Kind.PAUSE:
                    self._paused_until = max(self._paused_until, time.monotonic() + message.number)
                else:
                    self._count(message)
                    channel.send(YES)
        except ValueError:
            log.exception("a message of a task cannot be read, so the task fails")
        finally:
            self._finish_request(permit)

    async def _permit(self, channel: TaskChannel, *, is_retry: bool) -> Permit | None:
        """Wait until a request may be sent, first come, first served; return None if the task has to stop."""
        async with self._turn:
            if channel.has_ended:  # the task died while it waited
                return None
            while (wait := self._free_at(now := time.monotonic()) - now) > 0 and not self.refused:  # noqa: ASYNC110
                await asyncio.sleep(min(wait, _POLL_SECONDS))
            permit = Permit(now, 0) if self._window is None else self._window.take(now)
        if self.refused:
            return None
        figures = self.figures
        figures.began = figures.began or permit.at
        figures.ended = permit.at
        figures.requests += 1
        figures.retried += is_retry
        return permit

    def _free_at(self, now: float) -> float:
        """Return the earliest time of the next permit, as of `now`."""
        return max(self._paused_until, now if self._window is None else self._window.free_at(now))

    def _finish_request(self, permit: Permit | None) -> None:
        if permit is not None and self._window is not None:
            self._window.finish(permit, time.monotonic())

    def _count(self, message: Message) -> None:
        number, figures = int(message.number), self.figures
        match message.kind:
            case Kind.BEGIN:
                figures.repeated_tasks += self._task_starts[number] > 0
                self._task_starts[number] += 1
            case Kind.DONE:
                figures.rows += number
            case Kind.DEAD:
                figures.dead += number
            case Kind.REFUSED:
                self.refused = self.refused or message.texts[0]
