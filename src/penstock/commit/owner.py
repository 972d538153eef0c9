"""Identity of a process, such as the owner of a commit, and whether the process is still alive."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TAG = re.compile(r"([0-9a-f]{8})-(\d{1,10})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Owner:
    """Identity of a process.

    `host` identifies the machine, its last boot, and the namespace of process ids; a container has its own namespace,
    so it counts as a separate machine. `started` is the start time in clock ticks since the boot. It distinguishes the
    process from a later process with the same id, and is empty if the system does not report start times.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        """Return this process."""
        return cls(_host_id(), os.getpid(), _start_time(os.getpid()) or "")

    @classmethod
    def from_json(cls, content: bytes) -> Owner | None:
        """Return the process that JSON describes; None if the JSON is not valid."""
        try:
            fields = json.loads(content)
            return cls(str(fields["host"]), int(fields["pid"]), str(fields["started"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @property
    def tag(self) -> str:
        """An abbreviation of the identity for file names; see `tag_is_alive`."""
        return f"{_short_hash(self.host)}-{self.pid}-{_short_hash(self.started)}"

    def is_alive(self) -> bool | None:
        """Whether the process still runs; None if it ran on another machine, or is hidden from this user."""
        return _still_runs(self.pid, lambda started: started == self.started) if self.host == _host_id() else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"


def tag_is_alive(name: str) -> bool | None:
    """Whether the process whose `Owner.tag` is in a name still runs; None if this machine cannot determine that."""
    tag = _TAG.search(name)
    if tag is None or tag[1] != _short_hash(_host_id()):
        return None
    return _still_runs(int(tag[2]), lambda started: _short_hash(started) == tag[3])


def tags_in(name: str) -> set[str]:
    """Return each `Owner.tag` in a name."""
    return {match[0] for match in _TAG.finditer(name)}


def _still_runs(pid: int, is_same_start: Callable[[str], bool]) -> bool | None:
    """Whether a process runs and has the expected start time; None if a time is expected, but not reported."""
    started = _start_time(pid)
    if started is None:
        return False
    return is_same_start(started) or (None if not started else False)


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _host_id() -> str:
    """Return an identity that no two running machines share; host names and process ids alone are not unique."""
    try:
        namespace = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{namespace}/{_boot_id()}"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""


def _read_stat(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # overflow: larger than any process id
        return False
    except PermissionError:
        return True
    return True


def _start_time(pid: int) -> str | None:
    """Return the start time of a process; None if it does not run, an empty string if the system does not report it."""
    try:
        fields = _read_stat(pid).rpartition(")")[2].split()
    except OSError:  # not Linux, or a /proc that hides the processes of other users (hidepid)
        return "" if _process_exists(pid) else None
    return None if fields[0] in {"Z", "X"} else fields[19]  # state (Z: a zombie, which does not run), start time
