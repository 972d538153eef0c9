"""Ownership of files: Penstock does not act on content that another user may have written."""

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
    """Another user."""
    UNKNOWN = auto()
    """Unknown: the file system records no owners, like object stores."""


@dataclass(frozen=True, slots=True)
class CheckedContent:
    """The content of a file and its possible writer.

    `content` is the content; empty if this process cannot, or should not, read it. `reason` says why the file is not
    trusted as the user's own; empty if it is.
    """

    content: bytes
    writer: Writer
    reason: str = ""


def read_checked(path: str, limit: int) -> CheckedContent | None:
    """Return the content of a local file, up to a limit in bytes, with its possible writer; None if it does not exist.

    Owner, permissions and size are read from the open file, so that it cannot be replaced between check and read.
    Symbolic links are not followed, as their creator chose the target.
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
        if status.st_size > limit:
            return too_large(status.st_size, limit)
        return check_owner(file.read(limit), status.st_uid, os.geteuid(), status.st_mode)


def check_owner(content: bytes, owner: object, user: object, mode: int) -> CheckedContent:
    """Return the content of a file with its writer, by its owner and its permission bits."""
    if owner != user:
        return CheckedContent(content, Writer.OTHER, f"it belongs to user {owner}, and this process runs as {user}")
    if mode & _WRITABLE_BY_OTHERS:
        return CheckedContent(content, Writer.OTHER, f"other users may write to it (mode {mode & 0o777:o})")
    return CheckedContent(content, Writer.USER)


def too_large(size: int, limit: int) -> CheckedContent:
    """Return the result for a file that is larger than any file that Penstock writes."""
    return CheckedContent(b"", Writer.OTHER, f"it has {size:,} bytes, more than the {limit:,} that are read")


def is_own_entry(path: str) -> bool:
    """Whether a local path is a file or folder of this process's user, and not a symbolic link."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
