"""How tasks that send requests talk to the driver: who may send when, and what has come of it."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO

from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

NONCE_BYTES = 16
PROOF_BYTES = 32
_CONNECT_SECONDS = 20.0


class Kind(StrEnum):
    """What a message is about, and what its number and its texts are.

    All are asked but `ANSWERED` and `PAUSE`, which are told. So what came of rows is noted before their task ends.
    """

    BEGIN = "begin"
    """A task begins: its number."""
    PERMIT = "permit"
    """It wants to send a request: the how-manieth attempt. The answer comes when it may; no means that it must stop."""
    ANSWERED = "answered"
    """The service has answered: after so many seconds."""
    PAUSE = "pause"
    """The service wants to be left alone: for so many seconds."""
    DONE = "done"
    """The service has taken rows: how many."""
    DEAD = "dead"
    """It has refused rows, which are kept: how many."""
    REFUSED = "refused"
    """It has refused rows, which nobody keeps: why, and no other task needs to go on."""
    WAS_SENT = "was sent"
    """Whether a row is one of the first ones, each of which is left out once of the rest: the number of the task."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a task tells the driver.

    Parameters
    ----------
    kind
        What it is about.
    number, texts
        See `Kind`.
    """

    kind: Kind
    number: float = 0
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: bytes) -> Message:
        """Read one.

        Raises
        ------
        ValueError
            If that is none.
        """
        kind, number, texts = json.loads(line)
        return cls(Kind(kind), float(number), tuple(map(str, texts)))

    def line(self) -> bytes:
        """Return it as bytes."""
        return json.dumps([self.kind, self.number, self.texts]).encode() + b"\n"


YES, NO = b"1", b"0"


def proof(secret: bytes, role: bytes, nonce: bytes) -> bytes:
    """Return what only who knows the secret can say to a nonce."""
    return hmac.digest(secret, role + nonce, hashlib.sha256)


class DriverLink:
    """A task's connection to the driver.

    Parameters
    ----------
    sock, stream
        The connection, proven to be the driver's.
    """

    def __init__(self, sock: socket.socket, stream: BinaryIO) -> None:
        self._sock = sock
        self._stream = stream

    def tell(self, kind: Kind, number: float = 0, *texts: str) -> None:
        """Tell the driver something."""
        self._sock.sendall(Message(kind, number, texts).line())

    def ask(self, kind: Kind, number: float = 0, *texts: str) -> bool:
        """Ask the driver something, and wait for its answer.

        Raises
        ------
        SinkError
            If the driver has gone, or its sink has ended.
        """
        self.tell(kind, number, *texts)
        return self.answer()

    def answer(self) -> bool:
        """Wait for the answer to what the driver was told.

        Raises
        ------
        SinkError
            If the driver has gone, or its sink has ended.
        """
        answer = self._stream.read(1)
        if not answer:
            raise SinkError("the driver no longer tells when to send", cause="its side of the sink has ended")
        return answer == YES


@dataclass(frozen=True, slots=True)
class DriverPlace:
    """Where the driver answers tasks.

    Parameters
    ----------
    host, port
        Its address.
    secret
        What it and the tasks know.
    """

    host: str
    port: int
    secret: bytes

    @contextmanager
    def connect(self) -> Iterator[DriverLink]:
        """Connect a task.

        Raises
        ------
        SinkError
            If there is nobody, or somebody else.
        """
        try:
            sock = socket.create_connection((self.host, self.port), timeout=_CONNECT_SECONDS)
        except OSError as error:
            raise _unreachable(self, str(error)) from error
        with sock, sock.makefile("rb") as stream:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine = os.urandom(NONCE_BYTES)
            theirs = stream.read(NONCE_BYTES)
            sock.sendall(mine + proof(self.secret, b"task", theirs))
            if not hmac.compare_digest(stream.read(PROOF_BYTES), proof(self.secret, b"driver", mine)):
                raise _unreachable(self, "somebody else answers")
            sock.settimeout(None)  # a permit may take its time
            yield DriverLink(sock, stream)


def _unreachable(place: DriverPlace, cause: str) -> SinkError:
    return SinkError(
        f"a task does not reach the driver at {place.host}:{place.port}",
        cause=cause,
        hint="tasks ask the driver when they may send: set spark.driver.host to what executors can reach",
    )
