"""Who may have written a file: what another user may have written is not acted upon."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from enum import Enum, auto

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Writer(Enum):
    """Who may have written a file."""

    USER = auto()
    """Only the user of this process."""
    OTHER = auto()
    """Another user."""
    UNKNOWN = auto()
    """Anybody: the file system records no owners, as object stores do not."""


@dataclass(frozen=True, slots=True)
class CheckedContent:
    """The content of a file, and who may have written it.

    Parameters
    ----------
    content
        The content; empty where this process cannot, or should not, read it.
    writer
        Who may have written it.
    reason
        Why the file does not count as the user's own; empty text where it does.
    """

    content: bytes
    writer: Writer
    reason: str = ""


def read_checked(path: str, limit: int) -> CheckedContent | None:
    """Return the content of a file of this machine with its writer; None if there is no such file.

    Owner, permissions and size are those of the opened file, so that nobody can exchange it between check and read. A
    symbolic link is not followed: whoever made it chose where it leads.

    Parameters
    ----------
    path
        The file.
    limit
        The largest size to read, in bytes.
    """
    try:
        # Without O_NONBLOCK the open of a named pipe would wait for its writer.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else f"it cannot be read ({error.strerror})"
        return CheckedContent(b"", Writer.OTHER, reason)
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            return CheckedContent(b"", Writer.OTHER, "it is not a regular file")
        if status.st_size > limit:
            return too_large(status.st_size, limit)
        return judged(file.read(limit), status.st_uid, os.geteuid(), status.st_mode)


def judged(content: bytes, owner: object, user: object, mode: int) -> CheckedContent:
    """Return the content of a file with its writer, by its owner and its permission bits."""
    if owner != user:
        return CheckedContent(content, Writer.OTHER, f"it belongs to user {owner}, and this process runs as {user}")
    if mode & _WRITABLE_BY_OTHERS:
        return CheckedContent(content, Writer.OTHER, f"other users may write to it (mode {mode & 0o777:o})")
    return CheckedContent(content, Writer.USER)


def too_large(size: int, limit: int) -> CheckedContent:
    """Return what is said of a file that is larger than anything Penstock writes there."""
    return CheckedContent(b"", Writer.OTHER, f"it has {size:,} bytes, more than the {limit:,} that are read")


def is_own_entry(path: str) -> bool:
    """Whether a path of this machine is a file or folder of this process's user, and not a symbolic link."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
