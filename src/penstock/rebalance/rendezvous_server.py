"""The driver's side of `penstock.rebalance.rendezvous`: one small server in the driver's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from penstock.errors import RebalanceError
from penstock.rebalance import rendezvous
from penstock.rebalance.rendezvous import ALONE, REPLACED, Caller, Rendezvous

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HANDSHAKE_SECONDS = 10.0
_STRANGERS = 512
"""Connections that have not proven anything yet, at a time; further ones are dropped."""


def rendezvous_of(spark: SparkSession) -> Rendezvous:
    """Return where the tasks of a new exchange of a session meet."""
    host = spark.conf.get("spark.driver.host", None) or "localhost"
    server = _server_at(spark.conf.get("spark.driver.bindAddress", None) or host)
    return Rendezvous(host.strip("[]"), server.port, server.secret, secrets.token_hex(8))


@cache
def _server_at(host: str) -> RendezvousServer:
    return RendezvousServer(host.strip("[]"))


@dataclass(eq=False, slots=True)
class _Call:
    caller: Caller
    answer: asyncio.Future[bytes]


class RendezvousServer:
    """Tells tasks where the others listen, once all of a stage have called.

    Parameters
    ----------
    host
        The address to listen at.
    patience
        Seconds after which those who have come are told that the others did not.
    """

    def __init__(self, host: str, patience: float = rendezvous.PATIENCE_SECONDS) -> None:
        self.secret = secrets.token_bytes(32)
        self._patience = patience
        self._stages: dict[tuple[str, int], dict[int, _Call]] = {}
        self._given_up: set[tuple[str, int]] = set()
        self._strangers = 0
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
        if self._strangers >= _STRANGERS:
            raise RebalanceError("too many strangers")
        self._strangers += 1
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                nonce = os.urandom(rendezvous.NONCE_BYTES)
                writer.write(nonce)
                header = await reader.readexactly(rendezvous.LENGTH_BYTES)
                body = await reader.readexactly(rendezvous.length_of(header, rendezvous.LARGEST_CALL))
                proof = await reader.readexactly(rendezvous.PROOF_BYTES)
        finally:
            self._strangers -= 1
        rendezvous.check(self.secret, b"call", nonce, body, proof)
        return Caller.of(body)

    async def _answer(self, caller: Caller, reader: asyncio.StreamReader) -> bytes | None:
        """Wait for the others; None for who is gone."""
        key = caller.exchange, caller.stage
        if key in self._given_up:
            return ALONE
        call = _Call(caller, self._loop.create_future())
        if not self._join(key, call):
            return REPLACED
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({call.answer, gone}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        has_left = gone.done()
        gone.cancel()
        if call.answer.done():
            return call.answer.result()
        if has_left:
            self._leave(key, caller)
            return None
        self._given_up.add(key)
        for waiting in self._stages.pop(key).values():
            waiting.answer.set_result(ALONE)
        return ALONE

    def _leave(self, key: tuple[str, int], caller: Caller) -> None:
        waiting = self._stages[key]
        del waiting[caller.index]
        if not waiting:
            del self._stages[key]

    def _join(self, key: tuple[str, int], call: _Call) -> bool:
        """Add a task to those who wait, and answer all if it is the last; False if it is late by an attempt."""
        waiting = self._stages.setdefault(key, {})
        earlier = waiting.get(call.caller.index)
        if earlier is not None:
            if earlier.caller.task_attempt > call.caller.task_attempt:
                return False
            earlier.answer.set_result(REPLACED)
        waiting[call.caller.index] = call
        if len(waiting) == call.caller.tasks:
            body = rendezvous.answer_of([one.caller for one in self._stages.pop(key).values()])
            for one in waiting.values():
                one.answer.set_result(body)
        return True
