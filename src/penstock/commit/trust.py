"""Checks that a file of a commit (a journal, pointer, claim or lease) was written by this user.

On file systems that do not record the owner of a file, a digest with the user's secret key identifies the user's files.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.local_files import write_atomically
from penstock.base.ownership import Writer
from penstock.errors import UntrustedJournalError

if TYPE_CHECKING:
    from penstock.commit.prepared import Access
    from penstock.spark.io.filesystem import HadoopPath

log = logging.getLogger("penstock.commit")

LARGEST_JOURNAL = 128 << 20
"""Largest size in bytes of a journal that is read; enough for a million files."""
LARGEST_POINTER = 64 << 10
"""Largest size in bytes of a pointer, claim or lease that is read."""
_NAME = re.compile(r"\.penstock-commit-[\w.-]+\.json")  # of a journal
_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(/.*)", re.DOTALL)
_SCHEMES_WITH_OWNERS = {"hdfs", "viewfs", "webhdfs", "swebhdfs"}
_SCHEMES = {"file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "oss", "cosn", "obs", "ofs"}
_SCHEMES |= {"o3fs", "dbfs", *_SCHEMES_WITH_OWNERS}
"""File systems that can hold targets of sinks. Hadoop supports others, such as ``http``, which cannot be written to."""
_WARNED: set[str] = set()  # the messages that were logged
_SIGNED = re.compile(rb'\{"digest": "([0-9a-f]{64})", ')
_KEY_BYTES = 32
_FORBIDDEN_MODE = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""Permissions that the user's key file must not have. The group of the file may read it."""


def read_trusted(access: Access, file: HadoopPath, max_bytes: int) -> bytes | None:
    """Return the content of a file, None if it does not exist; raise `UntrustedJournalError` if it is not trusted."""
    checked = file.read_checked(max_bytes)
    if checked is None:
        return None
    if checked.writer is Writer.USER or is_signed(file.name, checked.content):
        return checked.content
    if checked.content and str(file) == access.trusted_journal:
        return checked.content
    raise UntrustedJournalError.foreign(str(file), checked.reason)


def is_foreign(file: HadoopPath) -> bool:
    """Whether another user may have written a pointer, claim or lease; False if the file system records no owners.

    An unsigned claim or lease on a file system without owners is respected: waiting for the commit of a dead process is
    better than recovering a commit that still runs.
    """
    checked = file.read_checked(LARGEST_POINTER)
    return checked is not None and checked.writer is Writer.OTHER and not is_signed(file.name, checked.content)


def check_location(path: str, allowed: str | None = None) -> None:
    """Raise `UntrustedJournalError` if a path is not that of a journal, or its file system cannot hold sinks' targets.

    `allowed` is a path whose file system is accepted even if it is unknown to Penstock, or None.
    """
    location = _LOCATION.fullmatch(path)
    if location is None or _NAME.fullmatch(path.rpartition("/")[2]) is None or {".", ".."} & set(path.split("/")):
        raise UntrustedJournalError.foreign(path, "this is not the path of a commit journal")
    scheme, allowed_location = (location[1] or "file").lower(), _LOCATION.fullmatch(allowed or "")
    if scheme not in _SCHEMES and (allowed_location is None or scheme != (allowed_location[1] or "").lower()):
        raise UntrustedJournalError.foreign(path, f"the file system {scheme}: does not hold journals")


def check_path_from_database(path: str, warehouse: str) -> None:
    """Check that the path of a journal, from a row of a database, is on a trusted file system.

    Another user who may write the row could name a server that reports false owners. So a file system that records
    owners must be that of this machine or of Spark's warehouse. On object stores, the digest in the journal decides.
    Raise `UntrustedJournalError` if the path is on another server, or is not the path of a journal.
    """
    check_location(path, warehouse)
    location, trusted = _LOCATION.fullmatch(path), _LOCATION.fullmatch(warehouse)
    assert location is not None
    scheme = (location[1] or "file").lower()
    is_same_server = trusted is not None and (location[1], location[2]) == (trusted[1], trusted[2])
    if scheme != "file" and scheme in _SCHEMES_WITH_OWNERS and not is_same_server:
        cause = f"a row of a database names it, and its server is not that of spark.sql.warehouse.dir, {warehouse}"
        raise UntrustedJournalError.foreign(path, cause)


def warn_once(error: UntrustedJournalError) -> None:
    """Log that a file is ignored; each message is logged once per process."""
    text = str(error)
    if text not in _WARNED:
        _WARNED.add(text)
        log.warning("%s", text)


def signed_json(name: str, content: Mapping[str, Any]) -> bytes:
    """Return `content` as JSON; it begins with a digest of file name and content if the user has a secret key."""
    body = json.dumps(content, indent=1).encode()
    key = user_key()
    if key is None:
        return body
    return b'{"digest": "' + _digest(key, name, body[1:]).encode() + b'", ' + body[1:]


def is_signed(name: str, content: bytes) -> bool:
    """Whether the content of a file begins with a valid digest, computed with this user's key."""
    head = _SIGNED.match(content)
    key = None if head is None else user_key()
    if head is None or key is None:
        return False
    return hmac.compare_digest(head[1].decode(), _digest(key, name, content[head.end() :]))


def user_key() -> bytes | None:
    """Return the user's secret key, created if missing; None if that fails, or its owner, mode or length is unsafe."""
    try:
        path = key_file()
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(str(path), secrets.token_bytes(_KEY_BYTES), overwrite=False, private=True)
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = file.read(1024)
    except (OSError, RuntimeError, NotImplementedError) as error:  # such as no home folder, or a read-only home folder
        log.info("journals are written without a digest: there is no key: %s", error)
        return None
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & _FORBIDDEN_MODE or len(key) < _KEY_BYTES:
        log.warning("The key %s is not used: another user may know it. Remove it, or set its mode to 0600.", path)
        return None
    return key


def key_file() -> Path:
    """Return the path of the user's key below `XDG_STATE_HOME`; containers may share it as a mounted secret."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "journal.key"


def _digest(key: bytes, name: str, body: bytes) -> str:
    return hmac.new(key, name.encode() + b"\0" + body, hashlib.sha256).hexdigest()
