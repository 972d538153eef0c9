"""Letting two folders of a local file system change places in one step (Linux, ``renameat2``)."""

from __future__ import annotations

import ctypes
import os
import tempfile
from functools import lru_cache
from pathlib import Path

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_TRIED: dict[int, bool] = {}
"""What was found out, by file system."""


def exchange(one: str, other: str) -> bool:
    """Let two paths change places; return False where the system or the file system cannot."""
    call = _renameat2()
    return call is not None and call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0


def can_exchange(folder: str) -> bool:
    """Whether folders within a folder can `exchange`."""
    near = Path(folder)
    while not near.exists():
        near = near.parent
    device = near.stat().st_dev
    if device not in _TRIED:
        _TRIED[device] = _try(str(near))
    return _TRIED[device]


def _try(folder: str) -> bool:
    try:
        with tempfile.TemporaryDirectory(prefix=".penstock-try-", dir=folder) as tried:
            one, other = Path(tried) / "one", Path(tried) / "other"
            one.mkdir()
            other.mkdir()
            return exchange(str(one), str(other))
    except OSError:
        return False


@lru_cache(maxsize=1)
def _renameat2() -> ctypes._NamedFuncPointer | None:
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found
