"""How the tasks of a stage exchange their addresses: each task calls a server in the driver, which answers with all.

Spark's own ``allGather`` checks only once a second whether all tasks have called, and a task that waits in it takes its
executor down when Spark ends it. It is the fallback if the driver cannot be reached.
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
WAIT_SECONDS = 20.0
"""How long a task waits for the other tasks."""
_CONNECT_SECONDS = 5.0
_LENGTH = "!I"
LENGTH_BYTES = struct.calcsize(_LENGTH)
PROOF_BYTES = 32
LARGEST_CALL = 1 << 16
_LARGEST_ANSWER = 1 << 26
ALONE = b"null"
"""The answer if not all tasks of the attempt have called in time."""
REPLACED = b"false"
"""The answer to a task of an earlier attempt."""
IN_PART = b"[]"
"""The answer if Spark runs only some tasks of the stage in this attempt."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A task that calls the rendezvous.

    Parameters
    ----------
    task_attempt
        Its task attempt id in the application.
    nonce
        The nonce for the proof of the answer, as hexadecimal digits.
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
    def from_bytes(cls, body: bytes) -> Self:
        """Parse a call.

        Raises
        ------
        ValueError, TypeError
            If it is not a valid call.
        """
        return cls(**json.loads(body))

    def body(self) -> bytes:
        """Return the call as bytes."""
        return json.dumps(asdict(self)).encode()


def build_answer(callers: list[Caller]) -> bytes:
    """Return the answer to the tasks of a complete attempt, in any order."""
    ordered = sorted(callers, key=lambda caller: caller.index)
    peers = [[caller.host, caller.port] for caller in ordered]
    return json.dumps({"peers": peers, "salt": os.urandom(32).hex()}).encode()


def seal(secret: bytes, role: bytes, nonce: bytes, body: bytes) -> bytes:
    """Return a message with a proof that its sender knows the secret, and answers the nonce."""
    return struct.pack(_LENGTH, len(body)) + body + _proof(secret, role, nonce, body)


def read_length(header: bytes, largest: int) -> int:
    """Return the number of bytes of a message.

    Raises
    ------
    RebalanceError
        If the message is too long.
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
        If the proof is wrong.
    """
    if not hmac.compare_digest(proof, _proof(secret, role, nonce, body)):
        raise RebalanceError("a peer does not know the secret of the exchange's rendezvous")


def _proof(secret: bytes, role: bytes, nonce: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, role + nonce + body, hashlib.sha256)


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The address of the rendezvous of an exchange; created by `penstock.rebalance.rendezvous_server`."""

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
            None if the server cannot be reached, or not all tasks have called it: they use Spark's barrier then.

        Raises
        ------
        RebalanceError
            If a later attempt of the stage runs, or Spark runs only a part of the stage: the other tasks have already
            read the rows of another attempt.
        """
        nonce = os.urandom(NONCE_BYTES)
        caller = Caller(self.exchange, stage, task_attempt, index, tasks, *address, nonce.hex())
        try:
            with socket.create_connection((self.host, self.port), timeout=_CONNECT_SECONDS) as sock:
                sock.settimeout(WAIT_SECONDS + _CONNECT_SECONDS)
                with sock.makefile("rb") as stream:
                    server_nonce = _exactly(stream, NONCE_BYTES)
                    sock.sendall(seal(self.secret, b"call", server_nonce, caller.body()))
                    answer = _exactly(stream, read_length(_exactly(stream, LENGTH_BYTES), _LARGEST_ANSWER))
                    check(self.secret, b"answer", nonce, answer, _exactly(stream, PROOF_BYTES))
        except (OSError, EOFError, RebalanceError):
            return None
        if answer == ALONE:
            return None
        if answer == REPLACED:
            raise RebalanceError(f"a later attempt of the exchange has replaced task {index} of this attempt")
        if answer == IN_PART:
            raise RebalanceError.in_part(tasks)
        peers = [Peer(host, port) for host, port in json.loads(answer)["peers"]]
        return peers, hmac.digest(self.secret, b"stage" + answer, hashlib.sha256)


def _exactly(stream: BinaryIO, count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError
    return content
