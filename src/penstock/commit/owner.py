"""Who a commit belongs to, and whether that process still lives."""

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
    """A process.

    Parameters
    ----------
    host
        Its machine since it was last started, and the space of process ids in it (a container has one of its own).
    pid
        Its id.
    started
        When it began, so that a later process of the same id is another; empty where that cannot be told.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def me(cls) -> Owner:
        """Return this process."""
        return cls(_host(), os.getpid(), _started(os.getpid()) or "")

    @classmethod
    def told(cls, content: bytes) -> Owner | None:
        """Return the process that a file of JSON names; None if it names none."""
        try:
            said = json.loads(content)
            return cls(str(said["host"]), int(said["pid"]), str(said["started"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @property
    def tag(self) -> str:
        """Itself as a part of a file's name; see `tag_is_alive`."""
        return f"{_short(self.host)}-{self.pid}-{_short(self.started)}"

    def is_alive(self) -> bool | None:
        """Whether the process still runs; None if it ran on another machine, or this user may not see."""
        return _runs_still(self.pid, lambda started: started == self.started) if self.host == _host() else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


def tag_is_alive(name: str) -> bool | None:
    """Whether the process whose `Owner.tag` is in a name still runs; None if that cannot be told from here."""
    found = _TAG.search(name)
    if found is None or found[1] != _short(_host()):
        return None
    return _runs_still(int(found[2]), lambda started: _short(started) == found[3])


def tags_in(name: str) -> set[str]:
    """Return each `Owner.tag` in a name."""
    return {match[0] for match in _TAG.finditer(name)}


def _runs_still(pid: int, is_same: Callable[[str], bool]) -> bool | None:
    """Whether a process runs and began when it should have; None if the system does not tell when it began."""
    started = _started(pid)
    if started is None:
        return False
    return is_same(started) or (None if not started else False)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _host() -> str:
    """Return what no two machines that run at a time share: names and numbers alone are given twice."""
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
    """Whether there is a process of a number, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:  # larger than any number of a process
        return False
    return True


def _started(pid: int) -> str | None:
    """Return when a process began; None if it does not run, and an empty text where the system does not tell."""
    try:
        fields = _status(pid).rpartition(")")[2].split()
    except OSError:  # no Linux, or one that hides the processes of other users (hidepid)
        return "" if _runs(pid) else None
    return None if fields[0] in {"Z", "X"} else fields[19]  # a zombie does nothing any more
