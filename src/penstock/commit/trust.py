"""Which files of commits are acted upon: those that this user wrote."""

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
"""Bytes of the largest journal that is read: it lists up to a million files."""
LARGEST_NOTE = 64 << 10
"""Bytes of the largest file beside a journal that is read: a pointer, a claim, a lease."""
_NAME = re.compile(r"\.penstock-commit-[\w.-]+\.json")
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(/.*)", re.DOTALL)
_WITH_OWNERS = {"hdfs", "viewfs", "webhdfs", "swebhdfs"}
_STORES = {"file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "oss", "cosn", "obs", "ofs"}
_STORES |= {"o3fs", "dbfs", *_WITH_OWNERS}
"""File systems on which targets lie. Others that Hadoop knows, such as ``http``, hold no journals."""
_WARNED: set[str] = set()


def read_trusted(access: Access, file: Folder, limit: int) -> bytes | None:
    """Return what a file of a commit holds, None if there is none.

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
    """Whether another user wrote a file beside a journal; False where that cannot be known.

    A claim or a lease of the user's own on a file system without owners has to count even if it has no digest: to
    recover a commit that goes on is worse than to wait.
    """
    checked = file.read_checked(LARGEST_NOTE)
    return checked is not None and checked.writer is Writer.OTHER and not is_signed(file.name, checked.content)


def check_location(path: str, beside: str | None = None) -> None:
    """Refuse what is not the path of a journal.

    Parameters
    ----------
    path
        The path.
    beside
        The file system of this path may hold journals, too.

    Raises
    ------
    UntrustedJournalError
        If it is not a whole path, or not the name of a journal, or lies where no targets do.
    """
    location = _LOCATION.fullmatch(path)
    if location is None or _NAME.fullmatch(path.rpartition("/")[2]) is None or {".", ".."} & set(path.split("/")):
        raise UntrustedJournalError.foreign(path, "this is not the path of a commit journal")
    scheme, near = (location[1] or "file").lower(), _LOCATION.fullmatch(beside or "")
    if scheme not in _STORES and (near is None or scheme != (near[1] or "").lower()):
        raise UntrustedJournalError.foreign(path, f"journals do not lie on a file system {scheme}:")


def check_pointed(path: str, warehouse: str) -> None:
    """Refuse the path of a journal that a row of a database names, unless its file system can be believed.

    Whoever may write the row may name a server of their own, which reports any owner for a file. So a file system that
    records owners has to be that of this machine or of Spark's warehouse. Object stores record none: a digest decides.

    Raises
    ------
    UntrustedJournalError
        If it names another server, or is not the path of a journal.
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
    """Report a file that is ignored, once in a process: jobs look for journals again and again."""
    text = str(error)
    if text not in _WARNED:
        _WARNED.add(text)
        log.warning("%s", text)
