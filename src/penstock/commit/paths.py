"""Comparison of paths: several paths may name the same folder."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?=/|$)")
_WITHOUT_BUCKETS = {"file", "hdfs", "viewfs", "webhdfs", "swebhdfs"}
"""File systems whose server has several names or may be omitted; in other URIs the authority is a bucket."""


def location_of(path: str) -> str:
    """Return a path without the scheme of its file system, and without symbolic links of this machine.

    Jobs that share the folder of a journal share its file system, whatever scheme they use (``s3a://bucket`` or
    ``s3://bucket``). The bucket is part of the location, because a journal may name targets in several buckets.
    """
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return os.path.realpath(path if scheme is None else path[scheme.end() :]).rstrip("/")
    bucket = "" if scheme[1].lower() in _WITHOUT_BUCKETS else scheme[2] or ""
    return bucket + path[scheme.end() :].rstrip("/")


def are_within(inner: Iterable[str], outer: Iterable[str]) -> bool:
    """Whether any inner path equals an outer path or is below it."""
    outer_locations = {location_of(path) for path in outer}
    return bool(outer_locations) and any(
        ancestor in outer_locations for path in inner for ancestor in _with_ancestors(location_of(path))
    )


def _with_ancestors(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
