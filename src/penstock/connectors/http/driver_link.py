"""Protocol between the tasks of an HTTP sink and the driver: permits for requests, and reports of results."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.base.channel import ServerAddress
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.base.channel import DriverChannel

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
    """A message of a task to the driver; `Kind` defines its content."""

    kind: Kind
    number: float = 0
    texts: tuple[str, ...] = ()

    @classmethod
    def from_bytes(cls, content: bytes) -> Message:
        """Parse a message; raise `ValueError` if it is not valid."""
        kind, number, texts = json.loads(content)
        return cls(Kind(kind), float(number), tuple(map(str, texts)))

    def content(self) -> bytes:
        """Return the message as bytes."""
        return json.dumps([self.kind, self.number, self.texts]).encode()


YES, NO = b"1", b"0"


class DriverLink:
    """A task's connection to the driver."""

    def __init__(self, channel: DriverChannel) -> None:
        self._channel = channel

    def notify(self, kind: Kind, number: float = 0, *texts: str) -> None:
        """Send a message without waiting for a reply."""
        self._channel.send(Message(kind, number, texts).content())

    def request(self, kind: Kind, number: float = 0, *texts: str) -> bool:
        """Send a message, and return the reply; raise `SinkError` if the driver is gone, or its side has ended."""
        self.notify(kind, number, *texts)
        return self.read_reply()

    def read_reply(self) -> bool:
        """Wait for a reply; raise `SinkError` if the driver is gone, or its side of the sink has ended."""
        try:
            return self._channel.receive() == YES
        except EOFError as error:
            cause = "its side of the sink has ended"
            raise SinkError("the driver no longer permits requests", cause=cause) from error


class DriverAddress(ServerAddress):
    """The address at which the driver serves the tasks of a sink."""

    @contextmanager
    def connect(self) -> Iterator[DriverLink]:
        """Connect a task to the driver; raise `SinkError` if it cannot be reached, or another process responds."""
        try:
            channel = self.open(_CONNECT_SECONDS)
        except OSError as error:
            raise SinkError(
                f"a task does not reach the driver at {self.host}:{self.port}",
                cause=str(error),
                hint="tasks ask the driver when they may send: set spark.driver.host to what executors can reach",
            ) from error
        with closing(channel):
            yield DriverLink(channel)
