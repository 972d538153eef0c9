"""The driver's side of `penstock.rebalance.rendezvous`: a small server in the driver's process."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.base.channel import HANDSHAKE_SECONDS, ChannelServer, ServerAddress, driver_hosts
from penstock.rebalance.rendezvous import ALONE, IN_PART, REPLACED, WAIT_SECONDS, Caller, Rendezvous, build_answer
from penstock.spark.run.barrier import StageAttempt, running_attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from penstock.base.channel import TaskChannel

log = logging.getLogger("penstock.rebalance")

_MAX_ABANDONED = 1024
"""How many abandoned attempts are remembered. A late task of an older attempt waits for the timeout."""


def rendezvous_of(spark: SparkSession) -> Rendezvous:
    """Return the rendezvous for a new exchange of a session."""
    host, bind = driver_hosts(lambda key: spark.conf.get(key, None))
    channels = _server_at(bind).channels
    return Rendezvous(ServerAddress(host, channels.port, channels.secret), secrets.token_hex(8))


@cache
def _server_at(bind: str) -> RendezvousServer:
    return RendezvousServer(bind, running_attempt)


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

    `running` takes a stage, a task attempt id and a task index; returns the running stage attempt, None if the task
    belongs to an earlier attempt. `timeout` is how many seconds a task waits for the others.
    """

    def __init__(
        self, bind: str, running: Callable[[int, int, int], StageAttempt | None], timeout: float = WAIT_SECONDS
    ) -> None:
        self._running = running
        self._timeout = timeout
        self._attempts: dict[_Key, dict[int, _Call]] = {}
        self._abandoned: deque[_Key] = deque(maxlen=_MAX_ABANDONED)
        self.channels = ChannelServer("penstock-rendezvous", bind, self._serve)

    async def _serve(self, channel: TaskChannel) -> None:
        with suppress(ValueError, TypeError):
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                caller = Caller.from_bytes(await channel.receive())
            answer = await self._answer(caller, channel)
            if answer is not None:
                channel.send(answer)

    async def _answer(self, caller: Caller, channel: TaskChannel) -> bytes | None:
        """Wait for the other tasks and return the answer; None if the caller has disconnected."""
        attempt = await self._find_attempt(caller)
        if isinstance(attempt, bytes):
            return attempt
        key = _Key(caller.exchange, caller.stage, attempt.number)
        if key in self._abandoned:
            return ALONE
        call = _Call(caller, asyncio.get_running_loop().create_future())
        waiting = self._attempts.setdefault(key, {})
        waiting[caller.index] = call
        if len(waiting) == caller.tasks:
            await self._answer_all(self._attempts.pop(key))
        disconnected = asyncio.ensure_future(channel.wait_for_end())
        events: set[asyncio.Future[Any]] = {call.answer, disconnected}
        await asyncio.wait(events, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        has_left = disconnected.done()
        disconnected.cancel()
        if call.answer.done():
            return call.answer.result()
        if has_left:
            self._remove(key, caller)
            return None
        self._abandoned.append(key)
        for other in self._attempts.pop(key, {}).values():
            other.answer.set_result(ALONE)
        return ALONE

    async def _find_attempt(self, caller: Caller) -> StageAttempt | bytes:
        """Return the stage attempt that a task belongs to, or the answer if it cannot meet the others."""
        try:
            attempt = await asyncio.to_thread(self._running, caller.stage, caller.task_attempt, caller.index)
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
        body = attempt if isinstance(attempt, bytes) else build_answer(callers)
        for call in waiting.values():
            if not call.answer.done():
                call.answer.set_result(body)

    def _remove(self, key: _Key, caller: Caller) -> None:
        waiting = self._attempts.get(key, {})
        waiting.pop(caller.index, None)
        if not waiting:
            self._attempts.pop(key, None)
