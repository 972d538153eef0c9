"""The driver's side of `penstock.rebalance.rendezvous`: a small server in the driver's process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import threading
from collections import deque
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from penstock.errors import RebalanceError
from penstock.handshakes import Handshakes
from penstock.rebalance import rendezvous
from penstock.rebalance.rendezvous import ALONE, IN_PART, REPLACED, Caller, Rendezvous
from penstock.spark.barrier import StageAttempt, running_attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

log = logging.getLogger("penstock.rebalance")

_MAX_ABANDONED = 1024
"""How many abandoned attempts are remembered. A late task of an older attempt waits for the timeout."""


def rendezvous_of(spark: SparkSession) -> Rendezvous:
    """Return the rendezvous for a new exchange of a session."""
    host = spark.conf.get("spark.driver.host", None) or "localhost"
    server = _server_at(spark.conf.get("spark.driver.bindAddress", None) or host)
    return Rendezvous(host.strip("[]"), server.port, server.secret, secrets.token_hex(8))


@cache
def _server_at(host: str) -> RendezvousServer:
    return RendezvousServer(host.strip("[]"), running_attempt)


@dataclass(eq=False, slots=True)
class _Call:
    caller: Caller
    answer: asyncio.Future[bytes]


@dataclass(frozen=True, slots=True)
class _Key:
    exchange: str
    stage: int
    attempt: int


class RendezvousServer:
    """Sends tasks the addresses of all tasks, once all of an attempt of a stage have called.

    Parameters
    ----------
    running
        Takes a stage, a task attempt id and a task index; returns the running stage attempt, None if the task belongs
        to an earlier attempt.
    timeout
        Seconds that a task waits for the others.
    """

    def __init__(
        self,
        host: str,
        running: Callable[[int, int, int], StageAttempt | None],
        timeout: float = rendezvous.WAIT_SECONDS,
    ) -> None:
        self.secret = secrets.token_bytes(32)
        self._running = running
        self._timeout = timeout
        self._attempts: dict[_Key, dict[int, _Call]] = {}
        self._abandoned: deque[_Key] = deque(maxlen=_MAX_ABANDONED)
        self._handshakes = Handshakes()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="penstock-rendezvous", daemon=True).start()
        # On a thread of its own: the caller's thread may already run a loop, as in a notebook.
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, host, 0, backlog=512), self._loop)
        self._server = starting.result()
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError, RebalanceError), contextlib.closing(writer):
            caller = await self._read_call(reader, writer)
            answer = await self._answer(caller, reader)
            if answer is not None:
                writer.write(rendezvous.seal(self.secret, b"answer", bytes.fromhex(caller.nonce), answer))
                await writer.drain()

    async def _read_call(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Caller:
        """Return the calling task, if it proves to know the secret."""
        async with self._handshakes.limited(writer):
            nonce = os.urandom(rendezvous.NONCE_BYTES)
            writer.write(nonce)
            header = await reader.readexactly(rendezvous.LENGTH_BYTES)
            body = await reader.readexactly(rendezvous.read_length(header, rendezvous.LARGEST_CALL))
            proof = await reader.readexactly(rendezvous.PROOF_BYTES)
        rendezvous.check(self.secret, b"call", nonce, body, proof)
        return Caller.from_bytes(body)

    async def _answer(self, caller: Caller, reader: asyncio.StreamReader) -> bytes | None:
        """Wait for the other tasks and return the answer; None if the caller has disconnected."""
        attempt = await self._find_attempt(caller)
        if isinstance(attempt, bytes):
            return attempt
        key = _Key(caller.exchange, caller.stage, attempt.number)
        if key in self._abandoned:
            return ALONE
        call = _Call(caller, self._loop.create_future())
        waiting = self._attempts.setdefault(key, {})
        waiting[caller.index] = call
        if len(waiting) == caller.tasks:
            await self._answer_all(self._attempts.pop(key))
        disconnected = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({call.answer, disconnected}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        has_left = disconnected.done()
        disconnected.cancel()
        if call.answer.done():
            return call.answer.result()
        if has_left:
            self._remove(key, caller)
            return None
        self._abandon(key)
        return ALONE

    async def _find_attempt(self, caller: Caller) -> StageAttempt | bytes:
        """Return the stage attempt that a task belongs to, or the answer if it cannot meet the others."""
        try:
            attempt = await self._loop.run_in_executor(
                None, self._running, caller.stage, caller.task_attempt, caller.index
            )
        except Exception:
            log.warning("Spark does not report which attempt of stage %s runs", caller.stage, exc_info=True)
            return ALONE
        if attempt is None:
            return REPLACED
        return attempt if attempt.is_whole else IN_PART

    async def _answer_all(self, waiting: dict[int, _Call]) -> None:
        """Answer all tasks of an attempt, after checking again that it is still the current attempt."""
        callers = [call.caller for call in waiting.values()]
        attempt = await self._find_attempt(callers[0])
        body = attempt if isinstance(attempt, bytes) else rendezvous.build_answer(callers)
        for call in waiting.values():
            if not call.answer.done():
                call.answer.set_result(body)

    def _remove(self, key: _Key, caller: Caller) -> None:
        waiting = self._attempts.get(key, {})
        waiting.pop(caller.index, None)
        if not waiting:
            self._attempts.pop(key, None)

    def _abandon(self, key: _Key) -> None:
        self._abandoned.append(key)
        for call in self._attempts.pop(key, {}).values():
            call.answer.set_result(ALONE)
