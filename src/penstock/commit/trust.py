"""Checks that a journal, pointer, claim or lease was written by this user."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from penstock.commit.signing import is_signed
from penstock.errors import UntrustedJournalError
from penstock.spark.ownership import Writer

if TYPE_CHECKING:
    from penstock.commit.prepared import Access
    from penstock.spark.filesystem import Folder

log = logging.getLogger("penstock.commit")

LARGEST_JOURNAL = 128 << 20
"""Largest size in bytes of a journal that is read; enough for a million files."""
LARGEST_NOTE = 64 << 10
"""Largest size in bytes of a pointer, claim or lease that is read."""
_NAME = re.compile(r"\.penstock-commit-[\w.-]+\.json")
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(/.*)", re.DOTALL)
_WITH_OWNERS = {"hdfs", "viewfs", "webhdfs", "swebhdfs"}
_STORES = {"file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "oss", "cosn", "obs", "ofs"}
_STORES |= {"o3fs", "dbfs", *_WITH_OWNERS}
"""File systems that hold targets. Hadoop supports others, such as ``http``, that hold no journals."""
_WARNED: set[str] = set()


def read_trusted(access: Access, file: Folder, limit: int) -> bytes | None:
    """Return the content of a file of a commit; None if it does not exist.

    Raises
    ------
    UntrustedJournalError
        If another user may have written it.
    """
    checked = file.read_checked(limit)
    if checked is None:
        return None
    if checked.writer is Writer.USER or is_signed(file.name, checked.content):
        return checked.content
    if checked.content and str(file) == access.trusted:
        return checked.content
    raise UntrustedJournalError.foreign(str(file), checked.reason)


def is_foreign(file: Folder) -> bool:
    """Whether another user wrote a claim or lease; False if the file system does not record owners.

    An unsigned claim or lease on such a file system counts: to wait for a dead commit is better than to recover a
    running commit.
    """
    checked = file.read_checked(LARGEST_NOTE)
    return checked is not None and checked.writer is Writer.OTHER and not is_signed(file.name, checked.content)


def check_location(path: str, beside: str | None = None) -> None:
    """Check that a path is that of a journal.

    Parameters
    ----------
    path
        The path.
    beside
        Another path whose file system may hold journals too.

    Raises
    ------
    UntrustedJournalError
        If the path is not absolute, does not have the name of a journal, or is on a file system without targets.
    """
    location = _LOCATION.fullmatch(path)
    if location is None or _NAME.fullmatch(path.rpartition("/")[2]) is None or {".", ".."} & set(path.split("/")):
        raise UntrustedJournalError.foreign(path, "this is not the path of a commit journal")
    scheme, near = (location[1] or "file").lower(), _LOCATION.fullmatch(beside or "")
    if scheme not in _STORES and (near is None or scheme != (near[1] or "").lower()):
        raise UntrustedJournalError.foreign(path, f"the file system {scheme}: does not hold journals")


def check_pointed(path: str, warehouse: str) -> None:
    """Check that the path of a journal in a row of a database is on a trusted file system.

    Another user who may write the row could name a server that reports any owner for its files. So a file system that
    records owners must be that of this machine or of Spark's warehouse. On object stores the digest decides.

    Raises
    ------
    UntrustedJournalError
        If the path is on another server, or is not the path of a journal.
    """
    check_location(path, warehouse)
    location, near = _LOCATION.fullmatch(path), _LOCATION.fullmatch(warehouse)
    assert location is not None
    scheme = (location[1] or "file").lower()
    is_near = near is not None and (location[1], location[2]) == (near[1], near[2])
    if scheme != "file" and scheme in _WITH_OWNERS and not is_near:
        cause = f"a row of a database names it, and its server is not that of spark.sql.warehouse.dir, {warehouse}"
        raise UntrustedJournalError.foreign(path, cause)


def warn_of(error: UntrustedJournalError) -> None:
    """Log that a file is ignored, once per process and message."""
    text = str(error)
    if text not in _WARNED:
        _WARNED.add(text)
        log.warning("%s", text)
