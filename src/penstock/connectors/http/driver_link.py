"""Protocol between the tasks of an HTTP sink and the driver: permits for requests, and reports of results."""

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
    """The kinds of messages, with the meaning of their number and texts.

    All have a reply except `ANSWERED` and `PAUSE`. So the driver has counted the rows of a task before the task ends.
    """

    BEGIN = "begin"
    """A task begins. Number: the task."""
    PERMIT = "permit"
    """A task requests to send. Number: the attempt. The reply comes when it may send; `NO` stops the task."""
    ANSWERED = "answered"
    """A request has ended. Number: its seconds."""
    PAUSE = "pause"
    """The service requests a pause. Number: the seconds."""
    DONE = "done"
    """The service has accepted rows. Number: the rows."""
    DEAD = "dead"
    """The service has rejected rows, which become dead letters. Number: the rows."""
    REFUSED = "refused"
    """The service has rejected rows, and there are no dead letters, so all tasks stop. Text: the reason."""
    WAS_SENT = "was sent"
    """A task asks whether to leave out a row as it was among the first rows. Number: the task; text: the digest."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a task to the driver.

    Parameters
    ----------
    kind
        Its kind.
    number, texts
        Its content, see `Kind`.
    """

    kind: Kind
    number: float = 0
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: bytes) -> Message:
        """Parse a line.

        Raises
        ------
        ValueError
            If it is not a valid message.
        """
        kind, number, texts = json.loads(line)
        return cls(Kind(kind), float(number), tuple(map(str, texts)))

    def line(self) -> bytes:
        """Return the message as a line."""
        return json.dumps([self.kind, self.number, self.texts]).encode() + b"\n"


YES, NO = b"1", b"0"


def proof(secret: bytes, role: bytes, nonce: bytes) -> bytes:
    """Return the proof of knowing the secret, for a nonce."""
    return hmac.digest(secret, role + nonce, hashlib.sha256)


class DriverLink:
    """A task's connection to the driver.

    Parameters
    ----------
    sock, stream
        The authenticated connection.
    """

    def __init__(self, sock: socket.socket, stream: BinaryIO) -> None:
        self._sock = sock
        self._stream = stream

    def notify(self, kind: Kind, number: float = 0, *texts: str) -> None:
        """Send a message without waiting for a reply."""
        self._sock.sendall(Message(kind, number, texts).line())

    def request(self, kind: Kind, number: float = 0, *texts: str) -> bool:
        """Send a message, and return the reply.

        Raises
        ------
        SinkError
            If the driver is gone, or its side of the sink has ended.
        """
        self.notify(kind, number, *texts)
        return self.read_reply()

    def read_reply(self) -> bool:
        """Wait for the reply to a message.

        Raises
        ------
        SinkError
            If the driver is gone, or its side of the sink has ended.
        """
        reply = self._stream.read(1)
        if not reply:
            raise SinkError("the driver no longer permits requests", cause="its side of the sink has ended")
        return reply == YES


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """The address at which the driver serves tasks.

    Parameters
    ----------
    host, port
        The address.
    secret
        The secret shared by the driver and the tasks.
    """

    host: str
    port: int
    secret: bytes

    @contextmanager
    def connect(self) -> Iterator[DriverLink]:
        """Connect a task to the driver.

        Raises
        ------
        SinkError
            If the driver cannot be reached, or another process responds.
        """
        try:
            sock = socket.create_connection((self.host, self.port), timeout=_CONNECT_SECONDS)
        except OSError as error:
            raise _unreachable(self, str(error)) from error
        with sock, sock.makefile("rb") as stream:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            own_nonce = os.urandom(NONCE_BYTES)
            driver_nonce = stream.read(NONCE_BYTES)
            sock.sendall(own_nonce + proof(self.secret, b"task", driver_nonce))
            if not hmac.compare_digest(stream.read(PROOF_BYTES), proof(self.secret, b"driver", own_nonce)):
                raise _unreachable(self, "another process responds")
            sock.settimeout(None)  # a permit may take long
            yield DriverLink(sock, stream)


def _unreachable(address: DriverAddress, cause: str) -> SinkError:
    return SinkError(
        f"a task does not reach the driver at {address.host}:{address.port}",
        cause=cause,
        hint="tasks ask the driver when they may send: set spark.driver.host to what executors can reach",
    )
