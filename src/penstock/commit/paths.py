"""Paths as they are compared: one folder may be named in several ways."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(?=/|$)")


def place_of(path: str) -> str:
    """Return a path without the name of its file system, and on this machine without symbolic links.

    Who shares a journal's folder shares the file system, by whatever name (``s3a://bucket`` or ``s3://bucket``).
    """
    scheme = _SCHEME.match(path)
    plain = path[scheme.end() :] if scheme is not None else path
    if scheme is None or scheme[1] == "file":
        plain = os.path.realpath(plain)
    return plain.rstrip("/")


def is_within(inner: str, outer: str) -> bool:
    """Whether a path is another, or lies below it."""
    inner, outer = place_of(inner), place_of(outer)
    return inner == outer or inner.startswith(f"{outer}/")
