"""Renames on a local file system: in one step or not at all, and never by a copy."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from functools import lru_cache
from pathlib import Path

_HERE = -100  # AT_FDCWD
_NO_REPLACE = 1  # RENAME_NOREPLACE
_EXCHANGE = 2  # RENAME_EXCHANGE
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR}
_UNKNOWN = {errno.EINVAL, errno.ENOSYS}
_ESCAPED = re.compile(r"\\([0-7]{3})")


def exchange(one: str, other: str) -> bool:
    """Let two paths change places (Linux, ``renameat2``); return False where the system or the file system cannot."""
    return _renameat2(one, other, _EXCHANGE) == 0


def rename(source: str, target: str) -> bool:
    """Rename onto a path that is free, together with the checksum that Hadoop keeps beside a file.

    Returns False where the path is taken, or there is nothing to rename. Nothing is ever copied, as Hadoop's own rename
    does between file systems: a copy can be seen, and be interrupted, half-way.

    Raises
    ------
    OSError
        If the file system refuses, such as between two volumes.
    """
    checksum, stale = _checksum(source), _checksum(target)
    if os.path.lexists(stale) and not os.path.lexists(checksum) and not os.path.lexists(target):
        Path(stale).unlink(missing_ok=True)
    failed = _renameat2(source, target, _NO_REPLACE)
    if failed in _UNKNOWN:
        failed = _rename_by_looking(source, target)
    if failed == errno.ENOENT or failed in _TAKEN:
        return False
    if failed:
        raise OSError(failed, os.strerror(failed), source, None, target)
    if os.path.lexists(checksum):
        Path(checksum).rename(stale)
    return True


def _checksum(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def _rename_by_looking(source: str, target: str) -> int:
    """Rename where the system cannot refuse a path that is taken; return why it failed, or 0."""
    if os.path.lexists(target):
        return errno.EEXIST
    try:
        Path(source).rename(target)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def is_volume(folder: str) -> bool:
    """Whether a folder is a volume of its own: nothing can be renamed between it and the folder that it lies in."""
    path = os.path.realpath(folder)
    return os.path.ismount(path) or path in _mounts()


def volumes_below(folder: str) -> list[str]:
    """Return where volumes are mounted below a folder, as far as the system tells."""
    above = os.path.realpath(folder).rstrip("/") + "/"
    return sorted(path for path in _mounts() if path.startswith(above))


def _mounts() -> set[str]:
    """Return where volumes are mounted; also those of which ``os.path.ismount`` does not know (bind mounts)."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:  # no Linux
        return set()
    return {_ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[4]) for line in lines}


def _renameat2(source: str, target: str, flag: int) -> int:
    """Rename as a flag says; return why it failed, or 0."""
    call = _found()
    if call is None:
        return errno.ENOSYS
    failed = call(_HERE, os.fsencode(source), _HERE, os.fsencode(target), flag) != 0
    return ctypes.get_errno() if failed else 0


@lru_cache(maxsize=1)
def _found() -> ctypes._NamedFuncPointer | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found
