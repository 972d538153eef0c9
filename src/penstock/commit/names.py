"""Comparison of paths, and checks of the paths and names in a commit journal (the list of what a commit changes).

The checks raise `ValueError` for an invalid name. Only journals of the same user are trusted (`penstock.commit.trust`),
but a trusted journal may be damaged, or trusted by mistake. Recovery must not affect paths outside its targets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(?=/|$)")  # scheme, and bucket or server
_SCHEMES_WITHOUT_BUCKET = {"file", "hdfs", "viewfs", "webhdfs", "swebhdfs"}
"""File systems whose server has several names or may be omitted; in other URIs the authority is a bucket."""
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)
STAGING_SUFFIX = r"[0-9a-f]{12}(-[0-9a-f]{8}-\d{1,10}-[0-9a-f]{8})?"
"""Regular expression of a staging folder's suffix: a random number and, optionally, the `Owner.tag` of its process."""
STAGED_FOLDER = re.compile(r"penstock-[0-9a-f]{12}")
"""Name of a folder of new files inside a table of Delta or Iceberg."""


def location_of(path: str) -> str:
    """Return a path in a form for comparison: without scheme and server, and with local symbolic links resolved.

    Jobs that see the same journal use the same file system, so scheme and server are dropped: an object store has
    several schemes (``s3a:``, ``s3:``), and a server of HDFS may have several names. The bucket remains, because a
    journal may name targets in several buckets.
    """
    scheme = _SCHEME.match(path)
    if scheme is None or scheme[1].lower() == "file":
        return os.path.realpath(path if scheme is None else path[scheme.end() :]).rstrip("/")
    bucket = "" if scheme[1].lower() in _SCHEMES_WITHOUT_BUCKET else scheme[2] or ""
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
    """Reject a path that is relative, contains a NUL character, or has a component ``.`` or ``..``."""
    if "\0" in path or {".", ".."} & set(path.split("/")):
        raise ValueError(f"the path {path!r} contains '.', '..' or a NUL character")
    if not path.startswith("/") and _URI.fullmatch(path) is None:
        raise ValueError(f"the path {path!r} is not absolute")


def check_relative_paths(names: Iterable[str]) -> None:
    """Reject names that are not relative paths below a folder; an empty string, the folder itself, is valid."""
    for name in names:
        if name and ("\0" in name or {"", ".", ".."} & set(name.split("/"))):
            raise ValueError(f"the path {name!r} contains an empty name, '.', '..' or a NUL character")


def check_files(names: Iterable[str]) -> None:
    """Reject names that are not paths of files inside a folder."""
    names = list(names)
    if "" in names:
        raise ValueError("a file has no name")
    check_relative_paths(names)


def check_staging(staging: str, target: str) -> None:
    """Reject `staging` unless it is named as a staging folder beside `target` or, for a volume, inside `target`."""
    check_path(target)
    check_path(staging)
    parent, _, name = staging.rpartition("/")
    target_parent, _, target_name = target.rstrip("/").rpartition("/")
    beside, inside = (rf"\.penstock-{prefix}-{STAGING_SUFFIX}" for prefix in (re.escape(target_name), "rows"))
    is_beside = _split_uri(parent) == _split_uri(target_parent) and re.fullmatch(beside, name)
    if not is_beside and not (_split_uri(parent) == _split_uri(target) and re.fullmatch(inside, name)):
        raise ValueError(f"{staging!r} is not a staging folder of {target!r}")


def check_within(path: str, folder: str, name_pattern: re.Pattern[str] | None = None) -> None:
    """Reject a path that is not below a folder, or whose last component does not match `name_pattern` (if set)."""
    check_path(folder)
    check_path(path)
    (system, inner), (folder_system, outer) = _split_uri(path), _split_uri(folder)
    # A catalog may omit the file system or server of a table's folder: Spark's defaults apply then.
    uses_defaults = folder.startswith("/") or (folder_system.endswith("://") and system.startswith(folder_system))
    is_below = inner.startswith(f"{outer}/") and (system == folder_system or uses_defaults)
    if not is_below or (name_pattern is not None and name_pattern.fullmatch(path.rpartition("/")[2]) is None):
        raise ValueError(f"{path!r} is not a folder that Penstock creates within {folder!r}")


def _split_uri(path: str) -> tuple[str, str]:
    """Split a path into its file system, empty for ``file:/a``, ``file:///a`` and ``/a``, and the path within it."""
    uri = _URI.fullmatch(path)
    system, folders = ("", path) if uri is None else (f"{uri[1]}://{uri[2] or ''}".lower(), uri[3])
    return "" if system == "file://" else system, re.sub("/+", "/", folders).rstrip("/")
