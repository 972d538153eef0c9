"""Protocol between the tasks of an HTTP sink and the driver: permits for requests, and reports of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.base.channel import ServerAddress
from penstock.errors import SinkError

if TYPE_CHECKING:
    from penstock.base.channel import DriverChannel

_CONNECT_SECONDS = 20.0


class MessageKind(StrEnum):
    """The kinds of messages, with the meaning of their number and texts.

    Tasks await replies, except to `REQUEST_ENDED` and `PAUSE`, so the driver has counted all rows of a task that ends.
    """

    BEGIN = "begin"
    """A task begins. Number: its partition, -1 for the task that measures the duration of requests."""
    PERMIT = "permit"
    """A task asks to send a request. Number: the attempt, from 1. Reply: `YES` once it may send, `NO` to stop it."""
    REQUEST_ENDED = "answered"
    """A request has ended, with or without a response. Number: its duration in seconds."""
    PAUSE = "pause"
    """The service requests a pause of all requests. Number: its duration in seconds."""
    DONE = "done"
    """The service has accepted rows. Number: the number of rows."""
    DEAD = "dead"
    """Rows that the service has not accepted become dead letters. Number: the number of rows."""
    REJECTED = "refused"
    """A request has failed permanently, and no dead letters are stored, so all tasks stop. Text: the reason."""
    SHOULD_SKIP = "was sent"
    """A task asks whether to skip a row that was sent to measure requests. Number: the partition; text: its digest."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a task to the driver; `MessageKind` defines its content."""

    kind: MessageKind
    number: float = 0
    texts: tuple[str, ...] = ()

    @classmethod
    def from_bytes(cls, content: bytes) -> Message:
        """Parse a message; raise `ValueError` if it is not valid."""
        kind, number, texts = json.loads(content)
        return cls(MessageKind(kind), float(number), tuple(map(str, texts)))

    def content(self) -> bytes:
        """Return the message as bytes."""
        return json.dumps([self.kind, self.number, self.texts]).encode()


YES, NO = b"1", b"0"  # the replies of the driver


class DriverLink:
    """A task's connection to the driver."""

    def __init__(self, channel: DriverChannel) -> None:
        self._channel = channel

    def notify(self, kind: MessageKind, number: float = 0, *texts: str) -> None:
        """Send a message without waiting for a reply."""
        self._channel.send(Message(kind, number, texts).content())

    def request(self, kind: MessageKind, number: float = 0, *texts: str) -> bool:
        """Send a message, and return whether the reply is `YES`; raise `SinkError` as `read_reply` does."""
        self.notify(kind, number, *texts)
        return self.read_reply()

    def read_reply(self) -> bool:
        """Wait for a reply, return whether it is `YES`; raise `SinkError` if the driver has closed the connection."""
        try:
            return self._channel.receive() == YES
        except EOFError as error:
            cause = "it has closed the connection of the sink"
            raise SinkError("the driver no longer permits requests", cause=cause) from error


class DriverAddress(ServerAddress):
    """The address at which the driver serves the tasks of a sink."""

    @contextmanager
    def connect(self) -> Iterator[DriverLink]:
        """Connect a task to the driver; raise `SinkError` if the driver is unreachable, or another process responds."""
        try:
            channel = self.open(_CONNECT_SECONDS)
        except OSError as error:
            raise SinkError(
                f"a task does not reach the driver at {self.host}:{self.port}",
                cause=str(error),
                hint="tasks request permits from the driver: set spark.driver.host to a host that executors can reach",
            ) from error
        with closing(channel):
            yield DriverLink(channel)
