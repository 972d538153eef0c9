"""The process that owns a commit, and whether it is still alive."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TAG = re.compile(r"([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of a process.

    `host` is the identity of the machine since its last boot, and of the namespace of process ids (each container has
    its own). `started` is the start time, which distinguishes a later process of the same id; empty if the system does
    not report it.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def me(cls) -> Owner:
        """Return this process."""
        return cls(_host(), os.getpid(), _started(os.getpid()) or "")

    @classmethod
    def from_json(cls, content: bytes) -> Owner | None:
        """Return the process that JSON describes; None if it describes none."""
        try:
            fields = json.loads(content)
            return cls(str(fields["host"]), int(fields["pid"]), str(fields["started"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @property
    def tag(self) -> str:
        """A short form of the process for file names; see `tag_is_alive`."""
        return f"{_short(self.host)}-{self.pid}-{_short(self.started)}"

    def is_alive(self) -> bool | None:
        """Whether the process still runs; None if it ran on another machine or is hidden from this user."""
        return _runs_still(self.pid, lambda started: started == self.started) if self.host == _host() else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


def tag_is_alive(name: str) -> bool | None:
    """Whether the process whose `Owner.tag` is in a name still runs; None if this machine cannot know."""
    tag = _TAG.search(name)
    if tag is None or tag[1] != _short(_host()):
        return None
    return _runs_still(int(tag[2]), lambda started: _short(started) == tag[3])


def tags_in(name: str) -> set[str]:
    """Return each `Owner.tag` in a name."""
    return {match[0] for match in _TAG.finditer(name)}


def _runs_still(pid: int, is_same: Callable[[str], bool]) -> bool | None:
    """Whether a process runs and has the expected start time; None if the system does not report start times."""
    started = _started(pid)
    if started is None:
        return False
    return is_same(started) or (None if not started else False)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _host() -> str:
    """Return an identity that no two running machines share; host names and process ids alone are not unique."""
    try:
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        space = ""
    return f"{socket.gethostname()}/{space}/{_boot() or ''}"


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # no Linux
        return None


def _status(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def _runs(pid: int) -> bool:

    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:  # larger than any process id
        return False
    return True


def _started(pid: int) -> str | None:
    """Return the start time of a process; None if it does not run, an empty string if the system does not report it."""
    try:
        fields = _status(pid).rpartition(")")[2].split()
    except OSError:  # no Linux, or a /proc that hides the processes of other users (hidepid)
        return "" if _runs(pid) else None
    return None if fields[0] in {"Z", "X"} else fields[19]  # a zombie does not run
