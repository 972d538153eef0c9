"""Exchange of addresses between the tasks of a stage: each task sends its address to a server in the driver.

The server replies with the addresses of all tasks. Spark's own ``allGather`` is only the fallback if there is no such
reply: it takes up to a second longer, and if Spark ends a task that waits in ``allGather``, the executor exits.
"""

from __future__ import annotations

import hmac
import json
import os
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from penstock.errors import RebalanceError

if TYPE_CHECKING:
    from penstock.base.channel import ServerAddress

WAIT_SECONDS = 20.0
"""Seconds that a task waits for the other tasks."""
_CONNECT_SECONDS = 5.0
INCOMPLETE = b"null"
"""The answer if not all tasks of the attempt have called in time, or Spark does not report the running attempt."""
REPLACED = b"false"
"""The answer to a task of an attempt that Spark has abandoned."""
PARTIAL = b"[]"
"""The answer if Spark runs only some tasks of the stage in this attempt."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The address of a task of the stage."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Caller:
    """A task that calls the rendezvous; `index` is its index in the stage, and `tasks` the number of tasks."""

    exchange: str
    stage: int
    task_attempt: int
    """The id of its attempt, unique in the application."""
    index: int
    tasks: int
    host: str
    port: int

    @classmethod
    def from_bytes(cls, body: bytes) -> Self:
        """Parse a call; raise `ValueError` or `TypeError` if it is not a valid call."""
        return cls(**json.loads(body))

    def body(self) -> bytes:
        """Return the call as bytes."""
        return json.dumps(asdict(self)).encode()


def build_answer(callers: list[Caller]) -> bytes:
    """Return the answer to all tasks of an attempt: their addresses by index, and a salt for the shared secret."""
    callers_by_index = sorted(callers, key=lambda caller: caller.index)
    peers = [[caller.host, caller.port] for caller in callers_by_index]
    return json.dumps({"peers": peers, "salt": os.urandom(32).hex()}).encode()


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The server that the tasks of an exchange call, and the exchange's id; created by `rendezvous_server`."""

    server: ServerAddress
    exchange: str

    def exchange_addresses(
        self, stage: int, task_attempt: int, index: int, tasks: int, address: tuple[str, int]
    ) -> tuple[list[Peer], bytes] | None:
        """Return the addresses of all tasks of this stage attempt, by index, and a secret that only these tasks share.

        None if the server cannot be reached, or not all tasks have called it: the tasks then use Spark's barrier. Raise
        `RebalanceError` if Spark has abandoned this attempt, or runs only some tasks of the stage in this attempt: the
        others have already read the rows of an earlier attempt.
        """
        caller = Caller(self.exchange, stage, task_attempt, index, tasks, *address)
        try:
            with closing(self.server.open(_CONNECT_SECONDS, WAIT_SECONDS + _CONNECT_SECONDS)) as channel:
                channel.send(caller.body())
                answer = channel.receive()
        except (OSError, EOFError, ValueError):
            return None
        if answer == INCOMPLETE:
            return None
        if answer == REPLACED:
            raise RebalanceError(f"a later attempt of the exchange has replaced task {index} of this attempt")
        if answer == PARTIAL:
            raise RebalanceError(
                f"Spark reruns only {tasks} tasks of the rebalance, not its whole stage",
                cause="the others succeeded just when a task of their attempt failed; rows would be lost or duplicated",
                hint="Spark retries the whole stage now",
            )
        peers = [Peer(host, port) for host, port in json.loads(answer)["peers"]]
        return peers, hmac.digest(self.server.secret, b"stage" + answer, "sha256")
