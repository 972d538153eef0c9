"""Comparison of paths, and checks of the paths and names in a journal before recovery uses them.

The checks raise `ValueError` for an invalid name. Only journals of the same user are trusted
(`penstock.commit.trust`). These checks apply to trusted journals too: a damaged journal, or a journal trusted by
mistake, must not affect paths outside its targets.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?=/|$)")
_WITHOUT_BUCKETS = {"file", "hdfs", "viewfs", "webhdfs", "swebhdfs"}
"""File systems whose server has several names or may be omitted; in other URIs the authority is a bucket."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)
MARK = r"[0-9a-f]{12}(-[0-9a-f]{8}-\d{1,10}-[0-9a-f]{8})?"
"""Suffix of a staging folder's name: a random number, and the tag of the process."""
STAGED_ROWS = re.compile(r"penstock-[0-9a-f]{12}")
"""Name of a folder of new files inside a table."""


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


def check_path(path: str) -> None:
    """Reject a path that is relative or contains ``.`` or ``..``."""
    if "\0" in path or {".", ".."} & set(path.split("/")):
        raise ValueError(f"the path {path!r} contains '.' or '..'")
    if not path.startswith("/") and _URI.fullmatch(path) is None:
        raise ValueError(f"the path {path!r} is not absolute")


def check_relative(names: Iterable[str]) -> None:
    """Reject names that are not paths inside a folder; an empty string is the folder itself."""
    for name in names:
        if name and ("\0" in name or {"", ".", ".."} & set(name.split("/"))):
            raise ValueError(f"the path {name!r} leads out of the target")


def check_files(names: Iterable[str]) -> None:
    """Reject names that are not paths of files inside a folder."""
    names = list(names)
    if "" in names:
        raise ValueError("a file has no name")
    check_relative(names)


def check_staging(staging: str, target: str) -> None:
    """Reject a folder that is not a staging folder of a target: beside it, or inside it if the target is a volume."""
    check_path(target)
    check_path(staging)
    parent, _, name = staging.rpartition("/")
    target_parent, _, target_name = target.rstrip("/").rpartition("/")
    is_beside = _is_same(parent, target_parent) and re.fullmatch(rf"\.penstock-{re.escape(target_name)}-{MARK}", name)
    if not is_beside and not (_is_same(parent, target) and re.fullmatch(rf"\.penstock-rows-{MARK}", name)):
        raise ValueError(f"{staging!r} is not a staging folder of {target!r}")


def check_within(path: str, folder: str, name: re.Pattern[str] | None = None) -> None:
    """Reject a path that is not below a folder, or whose last component does not match a pattern."""
    check_path(folder)
    check_path(path)
    (system, inner), (folder_system, outer) = _parts(path), _parts(folder)
    # A catalogue may omit the file system or server of a table's folder: Spark's defaults apply then.
    is_default = folder.startswith("/") or (folder_system.endswith("://") and system.startswith(folder_system))
    is_below = inner.startswith(f"{outer}/") and (system == folder_system or is_default)
    if not is_below or (name is not None and name.fullmatch(path.rpartition("/")[2]) is None):
        raise ValueError(f"{path!r} is not a folder that Penstock creates within {folder!r}")


def _is_same(path: str, other: str) -> bool:
    return _parts(path) == _parts(other)


def _parts(path: str) -> tuple[str, str]:
    """Return the file system of a path, and the path in it; ``file:/a``, ``file:///a`` and ``/a`` are the same."""
    uri = _URI.fullmatch(path)
    system, folders = ("", path) if uri is None else (f"{uri[1]}://{uri[2] or ''}".lower(), uri[3])
    return "" if system == "file://" else system, re.sub("/+", "/", folders).rstrip("/")
