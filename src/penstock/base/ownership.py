"""Ownership of files: which user may have written a file. Penstock trusts only the user of this process."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from enum import Enum, auto

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Writer(Enum):
    """The possible writer of a file."""

    USER = auto()
    """Only the user of this process."""
    OTHER = auto()
    """Possibly another user."""
    UNKNOWN = auto()
    """Unknown, as the file system records no owners of files, which is usual for object stores."""


@dataclass(frozen=True, slots=True)
class CheckedContent:
    """The content of a file and its possible writer.

    `content` is empty if this process cannot, or should not, read the file. `reason` says why the file is not trusted;
    empty if only the user of this process may have written it.
    """

    content: bytes
    writer: Writer
    reason: str = ""


def read_checked(path: str, max_bytes: int) -> CheckedContent | None:
    """Return the content of a local file, and its possible writer; None if the file does not exist.

    A file larger than `max_bytes` is not read. Owner, permissions and size are those of the open file, which cannot be
    replaced between check and read. Symbolic links are not followed: another user may have created them.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else f"it cannot be read ({error.strerror})"
        return CheckedContent(b"", Writer.OTHER, reason)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return CheckedContent(b"", Writer.OTHER, "it is not a regular file")
        if status.st_size > max_bytes:
            return too_large(status.st_size, max_bytes)
        return check_owner(file.read(max_bytes), status.st_uid, os.geteuid(), status.st_mode)


def check_owner(content: bytes, owner: object, user: object, mode: int) -> CheckedContent:
    """Return the content of a file with its possible writer; `user` runs this process, `mode` are permission bits."""
    if owner != user:
        return CheckedContent(content, Writer.OTHER, f"it belongs to user {owner}, and this process runs as {user}")
    if mode & _WRITABLE_BY_OTHERS:
        return CheckedContent(content, Writer.OTHER, f"other users may write to it (mode {mode & 0o777:o})")
    return CheckedContent(content, Writer.USER)


def too_large(size: int, max_bytes: int) -> CheckedContent:
    """Return the result for a file above `max_bytes`, which counts as another user's: Penstock writes no such file."""
    return CheckedContent(b"", Writer.OTHER, f"it has {size:,} bytes, more than the {max_bytes:,} that are read")


def belongs_to_user(path: str) -> bool:
    """Whether a local path is a file or folder of this process's user, and not a symbolic link."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
