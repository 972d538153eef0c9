"""The driver's side of an HTTP sink: grants permits to all tasks of a job, and counts results."""

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
    DriverAddress,
    Kind,
    Message,
    proof,
)
from penstock.connectors.http.first_rows import FirstRows
from penstock.connectors.http.pace import Permit, RateWindow, median
from penstock.handshakes import Handshakes
from penstock.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("penstock.sinks")

_MAX_DURATIONS = 1000
_POLL_SECONDS = 1.0
"""The interval at which a wait for a permit checks whether the job fails, as a service may request minutes."""


@dataclass(slots=True)
class Figures:
    """The counts of a sink's tasks, repeated tasks included.

    Parameters
    ----------
    requests, retried
        The number of requests, and how many of them were retries.
    rows, dead
        The numbers of rows that the service has accepted and rejected.
    repeated_tasks
        The number of repeated task attempts.
    began, ended
        The times of the first and the last permit.
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
    """Server for the tasks of a sink.

    Parameters
    ----------
    bind, host
        The address to listen on, and the address that tasks connect to.
    rate
        The maximum requests per second, None for no limit.
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
        self._loop = asyncio.new_event_loop()
        self._turn = asyncio.Lock()
        self._handshakes = Handshakes()
        start_thread("penstock-requests", self._run)
        secret = secrets.token_bytes(32)
        # In a separate thread, as the caller's may have a running event loop, as in a notebook.
        starting = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(lambda reader, writer: self._serve(secret, reader, writer), bind, 0, backlog=512),
            self._loop,
        )
        self._server = starting.result()
        self.address = DriverAddress(host, int(self._server.sockets[0].getsockname()[1]), secret)

    @property
    def median_seconds(self) -> float | None:
        """The median duration of a request, None if no request has ended."""
        return median(self.times)

    def close(self) -> None:
        """Stop the server; tasks that are still sending fail."""
        with contextlib.suppress(RuntimeError):  # already closed
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
                if await self._authenticate(secret, reader, writer):
                    await self._serve_task(reader, writer)
            except ValueError:
                log.exception("a message of a task cannot be read, so the task fails")

    async def _authenticate(self, secret: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with self._handshakes.limited(writer):
            own_nonce = os.urandom(NONCE_BYTES)
            writer.write(own_nonce)
            task_nonce = await reader.readexactly(NONCE_BYTES)
            task_proof = await reader.readexactly(PROOF_BYTES)
        if not hmac.compare_digest(task_proof, proof(secret, b"task", own_nonce)):
            return False
        writer.write(proof(secret, b"driver", task_nonce))
        return True

    async def _serve_task(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reply to the messages of a task until it disconnects."""
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
                    self._finish_request(permit)
                    self.times.append(message.number)
                elif message.kind is Kind.PAUSE:
                    self._paused_until = max(self._paused_until, time.monotonic() + message.number)
                else:
                    self._count(message)
                    writer.write(YES)
        finally:
            self._finish_request(permit)

    async def _permit(self, reader: asyncio.StreamReader, *, is_retry: bool) -> Permit | None:
        """Wait until a request may be sent, first come, first served; return None if the task has to stop."""
        async with self._turn:
            if reader.at_eof():  # the task died while it waited
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


def driver_side(conf: Callable[[str], str | None], rate: float | None) -> DriverSide:
    """Return the driver's side for a session; `conf` returns a setting of Spark by its key."""
    host = conf("spark.driver.host") or "localhost"
    bind = conf("spark.driver.bindAddress") or host
    return DriverSide(bind.strip("[]"), host.strip("[]"), rate)
