"""The driver's side of `penstock.rebalance.rendezvous`: one small server in the driver's process."""

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

_MOST_GIVEN_UP = 1024
"""How many attempts that were given up are remembered. A late task of an older one waits again, and meets nobody."""


def rendezvous_of(spark: SparkSession) -> Rendezvous:
    """Return where the tasks of a new exchange of a session meet."""
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
    """Tells tasks where the others listen, once all of an attempt of a stage have called.

    Parameters
    ----------
    host
        The address to listen at.
    running
        Takes a stage, a task's number and its index; returns the attempt it belongs to, None of one that is over.
    patience
        Seconds after which those who have come are told that the others did not.
    """

    def __init__(
        self,
        host: str,
        running: Callable[[int, int, int], StageAttempt | None],
        patience: float = rendezvous.PATIENCE_SECONDS,
    ) -> None:
        self.secret = secrets.token_bytes(32)
        self._running = running
        self._patience = patience
        self._attempts: dict[_Key, dict[int, _Call]] = {}
        self._given_up: deque[_Key] = deque(maxlen=_MOST_GIVEN_UP)
        self._handshakes = Handshakes()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="penstock-rendezvous", daemon=True).start()
        # In a thread of its own: the caller's may have a loop that runs, as in a notebook.
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, host, 0, backlog=512), self._loop)
        self._server = starting.result()
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError, RebalanceError), contextlib.closing(writer):
            caller = await self._called(reader, writer)
            answer = await self._answer(caller, reader)
            if answer is not None:
                writer.write(rendezvous.sealed(self.secret, b"answer", bytes.fromhex(caller.nonce), answer))
                await writer.drain()

    async def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Caller:
        """Return who is at the other end, if it proves to know the secret."""
        async with self._handshakes.limited(writer):
            nonce = os.urandom(rendezvous.NONCE_BYTES)
            writer.write(nonce)
            header = await reader.readexactly(rendezvous.LENGTH_BYTES)
            body = await reader.readexactly(rendezvous.length_of(header, rendezvous.LARGEST_CALL))
            proof = await reader.readexactly(rendezvous.PROOF_BYTES)
        rendezvous.check(self.secret, b"call", nonce, body, proof)
        return Caller.of(body)

    async def _answer(self, caller: Caller, reader: asyncio.StreamReader) -> bytes | None:
        """Wait for the others; None for who is gone."""
        attempt = await self._attempt_of(caller)
        if isinstance(attempt, bytes):
            return attempt
        key = _Key(caller.exchange, caller.stage, attempt.number)
        if key in self._given_up:
            return ALONE
        call = _Call(caller, self._loop.create_future())
        waiting = self._attempts.setdefault(key, {})
        waiting[caller.index] = call
        if len(waiting) == caller.tasks:
            await self._answer_all(self._attempts.pop(key))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({call.answer, gone}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        has_left = gone.done()
        gone.cancel()
        if call.answer.done():
            return call.answer.result()
        if has_left:
            self._leave(key, caller)
            return None
        self._give_up(key)
        return ALONE

    async def _attempt_of(self, caller: Caller) -> StageAttempt | bytes:
        """Return which attempt a task belongs to, or the answer to it where it cannot meet the others."""
        try:
            attempt = await self._loop.run_in_executor(
                None, self._running, caller.stage, caller.task_attempt, caller.index
            )
        except Exception:
            log.warning("Spark does not tell which attempt of stage %s runs", caller.stage, exc_info=True)
            return ALONE
        if attempt is None:
            return REPLACED
        return attempt if attempt.is_whole else IN_PART

    async def _answer_all(self, waiting: dict[int, _Call]) -> None:
        """Answer all tasks of an attempt, once more sure that what an earlier one gave does not count."""
        callers = [call.caller for call in waiting.values()]
        attempt = await self._attempt_of(callers[0])
        body = attempt if isinstance(attempt, bytes) else rendezvous.answer_of(callers)
        for call in waiting.values():
            if not call.answer.done():
                call.answer.set_result(body)

    def _leave(self, key: _Key, caller: Caller) -> None:
        waiting = self._attempts.get(key, {})
        waiting.pop(caller.index, None)
        if not waiting:
            self._attempts.pop(key, None)

    def _give_up(self, key: _Key) -> None:
        self._given_up.append(key)
        for waiting in self._attempts.pop(key, {}).values():
            waiting.answer.set_result(ALONE)
