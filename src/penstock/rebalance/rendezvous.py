"""How the tasks of a stage find one another: each tells a place at the driver where it listens, and is told of all.

Spark's own ``allGather`` looks only once a second whether all tasks have come, and a task that waits in it takes its
executor along when Spark ends it. It is what is left where the driver cannot be reached.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from penstock.errors import RebalanceError
from penstock.rebalance.transport import Peer

if TYPE_CHECKING:
    from typing import BinaryIO

NONCE_BYTES = 16
PATIENCE_SECONDS = 20.0
"""How long the others are waited for."""
_CONNECT_SECONDS = 5.0
_LENGTH = "!I"
LENGTH_BYTES = struct.calcsize(_LENGTH)
PROOF_BYTES = 32
LARGEST_CALL = 1 << 16
_LARGEST_ANSWER = 1 << 26
ALONE = b"null"
"""The answer to who came while the others did not."""
REPLACED = b"false"
"""The answer to who is late by an attempt."""
IN_PART = b"[]"
"""The answer to tasks of an attempt in which Spark runs only some of the stage's."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A task that wants to meet the others.

    Parameters
    ----------
    exchange, stage
        What it belongs to.
    task_attempt
        Its number in the application.
    index, tasks
        Which task of how many.
    host, port
        Where it listens.
    nonce
        What the answer must refer to, as hexadecimal digits.
    """

    exchange: str
    stage: int
    task_attempt: int
    index: int
    tasks: int
    host: str
    port: int
    nonce: str

    @classmethod
    def of(cls, body: bytes) -> Self:
        """Read one.

        Raises
        ------
        ValueError, TypeError
            If that is none.
        """
        return cls(**json.loads(body))

    def body(self) -> bytes:
        """Return it as bytes."""
        return json.dumps(asdict(self)).encode()


def answer_of(callers: list[Caller]) -> bytes:
    """Return what tasks are told that have all come, in any order."""
    ordered = sorted(callers, key=lambda caller: caller.index)
    return json.dumps({"peers": [[one.host, one.port] for one in ordered], "salt": os.urandom(32).hex()}).encode()


def sealed(secret: bytes, role: bytes, nonce: bytes, body: bytes) -> bytes:
    """Return a message with a proof that it comes from who knows the secret, and answers the nonce."""
    return struct.pack(_LENGTH, len(body)) + body + _proof(secret, role, nonce, body)


def length_of(header: bytes, largest: int) -> int:
    """Return how many bytes a message has.

    Raises
    ------
    RebalanceError
        If they are too many.
    """
    length = int(struct.unpack(_LENGTH, header)[0])
    if length > largest:
        raise RebalanceError("a message of the exchange's rendezvous is broken", cause=f"it has {length} bytes")
    return length


def check(secret: bytes, role: bytes, nonce: bytes, body: bytes, proof: bytes) -> None:
    """Check a message's proof.

    Raises
    ------
    RebalanceError
        If it is wrong.
    """
    if not hmac.compare_digest(proof, _proof(secret, role, nonce, body)):
        raise RebalanceError("a stranger does not know the secret of the exchange's rendezvous")


def _proof(secret: bytes, role: bytes, nonce: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, role + nonce + body, hashlib.sha256)


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the tasks of an exchange meet; made by `penstock.rebalance.rendezvous_server`.

    Parameters
    ----------
    host, port
        Of the place.
    secret
        What it and the tasks know.
    exchange
        Which exchange it is.
    """

    host: str
    port: int
    secret: bytes
    exchange: str

    def meet(
        self, stage: int, task_attempt: int, index: int, tasks: int, address: tuple[str, int]
    ) -> tuple[list[Peer], bytes] | None:
        """Return all tasks of this attempt of the stage, and a secret that only they share.

        Returns
        -------
        tuple or None
            None if the place cannot be reached, or not all have come there: they meet elsewhere then.

        Raises
        ------
        RebalanceError
            If a later attempt of the stage runs, or Spark runs only a part of the stage: the rest has read another
            attempt's rows.
        """
        nonce = os.urandom(NONCE_BYTES)
        caller = Caller(self.exchange, stage, task_attempt, index, tasks, *address, nonce.hex())
        try:
            with socket.create_connection((self.host, self.port), timeout=_CONNECT_SECONDS) as sock:
                sock.settimeout(PATIENCE_SECONDS + _CONNECT_SECONDS)
                with sock.makefile("rb") as stream:
                    theirs = _exactly(stream, NONCE_BYTES)
                    sock.sendall(sealed(self.secret, b"call", theirs, caller.body()))
                    answer = _exactly(stream, length_of(_exactly(stream, LENGTH_BYTES), _LARGEST_ANSWER))
                    check(self.secret, b"answer", nonce, answer, _exactly(stream, PROOF_BYTES))
        except (OSError, EOFError, RebalanceError):
            return None
        if answer == ALONE:
            return None
        if answer == REPLACED:
            raise RebalanceError(f"a later attempt of the exchange has taken the place of task {index} of this one")
        if answer == IN_PART:
            raise RebalanceError.in_part(tasks)
        peers = [Peer(host, port) for host, port in json.loads(answer)["peers"]]
        return peers, hmac.digest(self.secret, b"stage" + answer, hashlib.sha256)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise EOFError
    return found
