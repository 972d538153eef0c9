"""The file in a checkpoint that names the process whose query runs on it."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder

MARKER = "_penstock_query.json"


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as far as others can tell."""

    host: str
    pid: int

    @classmethod
    def this(cls) -> Self:
        """Return this process."""
        return cls(socket.gethostname(), os.getpid())

    @classmethod
    def of(cls, checkpoint: Folder) -> Self | None:
        """Return the process that a checkpoint's marker names, dead or alive."""
        file = checkpoint.child(MARKER)
        if not file.exists():
            return None
        try:
            said = json.loads(file.read())
            return cls(str(said["host"]), int(said["pid"]))
        except (ValueError, KeyError, TypeError):
            return None

    @classmethod
    def other(cls, checkpoint: Folder) -> Self | None:
        """Return the process that a checkpoint's marker names, if it is another one and is seen to live."""
        found = cls.of(checkpoint)
        return found if found is not None and found != cls.this() and found.alive else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def mark(self, checkpoint: Folder) -> bytes:
        """Say that this process runs the query of a checkpoint, and return what was written."""
        content = json.dumps(asdict(self) | {"start": uuid.uuid4().hex}).encode()
        checkpoint.child(MARKER).write(content, overwrite=True)
        return content

    @staticmethod
    def unmark(checkpoint: Folder, content: bytes) -> None:
        """Take back what `mark` has written; what another start of the query has written since stays."""
        file = checkpoint.child(MARKER)
        if file.exists() and file.read() == content:
            file.delete()

    @property
    def alive(self) -> bool | None:
        """Whether it lives; None of another machine's, which cannot be seen from here."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True
