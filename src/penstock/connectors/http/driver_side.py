"""The driver's side of a sink's requests: gives permits to all tasks of a job, and counts."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.http.driver_link import (
    NO,
    NONCE_BYTES,
    PROOF_BYTES,
    YES,
    DriverPlace,
    Kind,
    Message,
    proof,
)
from penstock.connectors.http.first_rows import FirstRows
from penstock.connectors.http.pace import Permit, RateWindow, middle
from penstock.handshakes import Handshakes
from penstock.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("penstock.sinks")

_KEPT_TIMES = 1000
_LOOK_SECONDS = 1.0
"""How often one that waits looks whether the job fails: a service may ask for minutes."""


@dataclass(slots=True)
class Figures:
    """What the tasks of a sink have done, repeated ones included.

    Parameters
    ----------
    requests, retried
        The requests, and how many of them were repetitions.
    rows, dead
        Rows that the service has taken, and that it has refused.
    repeated_tasks
        How often a task began that had begun before.
    began, ended
        When the first permit was given, and the last.
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
        """Requests a second from the first to the last, None of fewer than two."""
        return (self.requests - 1) / (self.ended - self.began) if self.ended > self.began else None


class DriverSide:
    """Answers the tasks of one sink of one job.

    Parameters
    ----------
    bind, host
        The address to listen at, and the one that tasks are told.
    rate
        The most requests a second, None for no limit.
    """

    def __init__(self, bind: str, host: str, rate: float | None) -> None:
        self.figures = Figures()
        self.refused = ""
        """Why rows were refused that nobody keeps."""
        self.times: deque[float] = deque(maxlen=_KEPT_TIMES)
        """What requests took."""
        self.first = FirstRows()
        """The rows that were sent already."""
        self._window = None if rate is None else RateWindow(rate)
        self._paused_until = 0.0
        self._begun: Counter[int] = Counter()
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()
        self._handshakes = Handshakes()
        start_thread("penstock-requests", self._run)
        secret = secrets.token_bytes(32)
        # In a thread of its own: the caller's may have a loop that runs, as in a notebook.
        starting = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(lambda reader, writer: self._serve(secret, reader, writer), bind, 0, backlog=512),
            self._loop,
        )
        self._server = starting.result()
        self.place = DriverPlace(host, int(self._server.sockets[0].getsockname()[1]), secret)

    @property
    def measured(self) -> float | None:
        """What a request takes, None if none was answered."""
        return middle(self.times)

    def close(self) -> None:
        """Answer nobody any more: tasks that still send stop."""
        with contextlib.suppress(RuntimeError):  # closed before
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        self._loop.run_forever()
        self._server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))
        self._loop.close()

    async def _serve(self, secret: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError), contextlib.closing(writer):
            try:
                if await self._is_task(secret, reader, writer):
                    await self._answer_all(reader, writer)
            except ValueError:
                log.exception("a message of a task cannot be read, so the task fails")

    async def _is_task(self, secret: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with self._handshakes.limited(writer):
            mine = os.urandom(NONCE_BYTES)
            writer.write(mine)
            theirs = await reader.readexactly(NONCE_BYTES)
            told = await reader.readexactly(PROOF_BYTES)
        if not hmac.compare_digest(told, proof(secret, b"task", mine)):
            return False
        writer.write(proof(secret, b"driver", theirs))
        return True

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a task until it ends."""
        permit: Permit | None = None
        claimed: Counter[str] = Counter()
        try:
            while line := await reader.readline():
                message = Message.of(line)
                if message.kind is Kind.PERMIT:
                    permit = await self._permit(reader, is_retry=message.number > 1)
                    writer.write(YES if permit else NO)
                elif message.kind is Kind.WAS_SENT:
                    writer.write(YES if self.first.claim(int(message.number), claimed, message.texts[0]) else NO)
                elif message.kind is Kind.ANSWERED:
                    self._answered(permit)
                    self.times.append(message.number)
                elif message.kind is Kind.PAUSE:
                    self._paused_until = max(self._paused_until, time.monotonic() + message.number)
                else:
                    self._note(message)
                    writer.write(YES)
        finally:
            self._answered(permit)

    async def _permit(self, reader: asyncio.StreamReader, *, is_retry: bool) -> Permit | None:
        """Wait until a request may be sent; None if none needs to be sent any more. First come, first served."""
        async with self._turn:
            if reader.at_eof():  # it died while it waited
                return None
            while (wait := self._free_at(now := time.monotonic()) - now) > 0 and not self.refused:  # noqa: ASYNC110
                await asyncio.sleep(min(wait, _LOOK_SECONDS))
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
        """Return when the next permit can be given, as far as is known now."""
        return max(self._paused_until, now if self._window is None else self._window.free_at(now))

    def _answered(self, permit: Permit | None) -> None:
        if permit is not None and self._window is not None:
            self._window.answered(permit, time.monotonic())

    def _note(self, message: Message) -> None:
        number, figures = int(message.number), self.figures
        match message.kind:
            case Kind.BEGIN:
                figures.repeated_tasks += self._begun[number] > 0
                self._begun[number] += 1
            case Kind.DONE:
                figures.rows += number
            case Kind.DEAD:
                figures.dead += number
            case Kind.REFUSED:
                self.refused = self.refused or message.texts[0]


def driver_side(conf: Callable[[str], str | None], rate: float | None) -> DriverSide:
    """Return the driver's side for a session, whose settings are asked by their key."""
    host = conf("spark.driver.host") or "localhost"
    bind = conf("spark.driver.bindAddress") or host
    return DriverSide(bind.strip("[]"), host.strip("[]"), rate)
