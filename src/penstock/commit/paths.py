"""Paths as they are compared: one folder may be named in several ways."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?=/|$)")
_OF_ONE_CLUSTER = {"file", "hdfs", "viewfs", "webhdfs", "swebhdfs"}
"""File systems whose server may be named in several ways, or left out; of others the name is that of a bucket."""


def place_of(path: str) -> str:
    """Return a path without the name of its file system, and on this machine without symbolic links.

    A bucket stays: who shares a journal's folder shares the file system, by whatever name (``s3a://bucket`` or
    ``s3://bucket``), but a journal may name targets in several buckets.
    """
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return os.path.realpath(path if scheme is None else path[scheme.end() :]).rstrip("/")
    bucket = "" if scheme[1].lower() in _OF_ONE_CLUSTER else scheme[2] or ""
    return bucket + path[scheme.end() :].rstrip("/")


def are_within(inner: Iterable[str], outer: Iterable[str]) -> bool:
    """Whether any path is one of others, or lies below one."""
    wanted = {place_of(path) for path in outer}
    return bool(wanted) and any(above in wanted for path in inner for above in _upwards(place_of(path)))


def _upwards(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
