"""The server in the driver through which the tasks of a stage exchange addresses (`penstock.rebalance.rendezvous`)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.base.channel import HANDSHAKE_SECONDS, ChannelServer, ServerAddress, driver_hosts
from penstock.rebalance.rendezvous import INCOMPLETE, PARTIAL, REPLACED, WAIT_SECONDS, Caller, Rendezvous, build_answer
from penstock.spark.run.barrier import StageAttempt, running_attempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.base.channel import TaskChannel

log = logging.getLogger("penstock.rebalance")

_MAX_ABANDONED = 1024
"""Maximum number of attempts remembered as `INCOMPLETE`. A late task of a forgotten attempt waits for the timeout."""


def rendezvous_of(spark: SparkSession) -> Rendezvous:
    """Return the rendezvous for a new exchange of a session."""
    host, bind = driver_hosts(lambda key: spark.conf.get(key, None))
    server = _server_at(bind).channel_server
    return Rendezvous(ServerAddress(host, server.port, server.secret), secrets.token_hex(8))


@cache
def _server_at(bind: str) -> RendezvousServer:
    return RendezvousServer(bind, running_attempt)


@dataclass(eq=False, slots=True)
class _Call:
    caller: Caller
    answer: asyncio.Future[bytes]


_AttemptKey = tuple[str, int, int]
"""An exchange, its stage, and the number of the stage's attempt."""


class RendezvousServer:
    """Sends tasks the addresses of all tasks, once all tasks of a stage attempt have called.

    `find_attempt` takes a stage, a task attempt id and a task index; returns the running attempt of the stage, None
    if Spark has abandoned the attempt of the task. `timeout` is the number of seconds that a task waits for the others.
    """

    def __init__(
        self, bind: str, find_attempt: Callable[[int, int, int], StageAttempt | None], timeout: float = WAIT_SECONDS
    ) -> None:
        self._find_attempt = find_attempt
        self._timeout = timeout
        self._attempts: dict[_AttemptKey, dict[int, _Call]] = {}
        self._abandoned: deque[_AttemptKey] = deque(maxlen=_MAX_ABANDONED)
        self.channel_server = ChannelServer("penstock-rendezvous", bind, self._serve)

    async def _serve(self, channel: TaskChannel) -> None:
        with suppress(ValueError, TypeError):
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                caller = Caller.from_bytes(await channel.receive())
            answer = await self._wait_for_answer(caller, channel)
            if answer is not None:
                channel.send(answer)

    async def _wait_for_answer(self, caller: Caller, channel: TaskChannel) -> bytes | None:
        """Wait for the other tasks and return the answer; None if the caller has disconnected."""
        attempt = await self._attempt_or_answer(caller)
        if isinstance(attempt, bytes):
            return attempt
        key = (caller.exchange, caller.stage, attempt.number)
        if key in self._abandoned:
            return INCOMPLETE
        call = _Call(caller, asyncio.get_running_loop().create_future())
        calls = self._attempts.setdefault(key, {})
        calls[caller.index] = call
        if len(calls) == caller.tasks:
            await self._answer_all(self._attempts.pop(key))
        disconnected = asyncio.ensure_future(channel.wait_for_end())
        events: set[asyncio.Future[Any]] = {call.answer, disconnected}
        await asyncio.wait(events, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        has_disconnected = disconnected.done()
        disconnected.cancel()
        if call.answer.done():
            return call.answer.result()
        if has_disconnected:
            self._remove(key, caller)
            return None
        self._abandoned.append(key)
        for waiting_call in self._attempts.pop(key, {}).values():
            waiting_call.answer.set_result(INCOMPLETE)
        return INCOMPLETE

    async def _attempt_or_answer(self, caller: Caller) -> StageAttempt | bytes:
        """Return the stage attempt that a task belongs to, or the answer if it cannot get the addresses."""
        try:
            attempt = await asyncio.to_thread(self._find_attempt, caller.stage, caller.task_attempt, caller.index)
        except Exception:
            log.warning("Spark does not report which attempt of stage %s runs", caller.stage, exc_info=True)
            return INCOMPLETE
        if attempt is None:
            return REPLACED
        return attempt if attempt.runs_all_tasks else PARTIAL

    async def _answer_all(self, calls: dict[int, _Call]) -> None:
        """Answer all tasks of an attempt, after another check that the attempt is current."""
        callers = [call.caller for call in calls.values()]
        attempt = await self._attempt_or_answer(callers[0])
        answer = attempt if isinstance(attempt, bytes) else build_answer(callers)
        for call in calls.values():
            if not call.answer.done():
                call.answer.set_result(answer)

    def _remove(self, key: _AttemptKey, caller: Caller) -> None:
        calls = self._attempts.get(key, {})
        calls.pop(caller.index, None)
        if not calls:
            self._attempts.pop(key, None)
