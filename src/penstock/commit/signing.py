"""Digests that identify a user's own journals on file systems that do not record the owner of a file."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.durable import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("penstock.commit")

_SIGNED = re.compile(rb'\{"digest": "([0-9a-f]{64})", ')
_KEY_BYTES = 32
_FORBIDDEN = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP


def signed(name: str, content: Mapping[str, Any]) -> bytes:
    """Return JSON that begins with a digest of name and content by the user's key, if there is a key."""
    body = json.dumps(content, indent=1).encode()
    key = user_key()
    if key is None:
        return body
    return b'{"digest": "' + _digest(key, name, body[1:]).encode() + b'", ' + body[1:]


def is_signed(name: str, content: bytes) -> bool:
    """Whether the content of a file begins with a digest by this user's key."""
    head = _SIGNED.match(content)
    key = None if head is None else user_key()
    if head is None or key is None:
        return False
    return hmac.compare_digest(head[1].decode(), _digest(key, name, content[head.end() :]))


def user_key() -> bytes | None:
    """Return the user's key, and create it if missing; None if it cannot be stored, or other users may read it."""
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
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & _FORBIDDEN or len(key) < _KEY_BYTES:
        log.warning("The key %s is not used: another user may know it. Remove it, or set its mode to 0600.", path)
        return None
    return key


def key_file() -> Path:
    """Return the path of the user's key below `XDG_STATE_HOME`; containers may share it as a mounted secret."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "journal.key"


def _digest(key: bytes, name: str, body: bytes) -> str:
    return hmac.new(key, name.encode() + b"\0" + body, hashlib.sha256).hexdigest()
