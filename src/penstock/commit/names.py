"""Checks of what a record names, before anything is done with it: `ValueError` says which name no job writes.

A journal is acted upon only if its user wrote it (`penstock.commit.trust`). These checks hold for such a journal too: a
damaged one, or one that was vouched for by mistake, must not lead out of its targets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)
MARK = r"[0-9a-f]{12}(-[0-9a-f]{8}-\d{1,10}-[0-9a-f]{8})?"
"""What follows a target's name in that of its staging folder: a random number, and the tag of the process."""
STAGED_ROWS = re.compile(r"penstock-[0-9a-f]{12}")
"""A folder of new files within a table."""


def check_path(path: str) -> None:
    """Refuse a path that is relative, or leads upwards."""
    if "\0" in path or {".", ".."} & set(path.split("/")):
        raise ValueError(f"the path {path!r} leads through '.' or '..'")
    if not path.startswith("/") and _URI.fullmatch(path) is None:
        raise ValueError(f"the path {path!r} is not absolute")


def check_relative(names: Iterable[str]) -> None:
    """Refuse names that are not paths within a folder; the folder itself is an empty text."""
    for name in names:
        if name and ("\0" in name or {"", ".", ".."} & set(name.split("/"))):
            raise ValueError(f"the path {name!r} leads out of the target")


def check_files(names: Iterable[str]) -> None:
    """Refuse names that are not paths of files within a folder."""
    names = list(names)
    if "" in names:
        raise ValueError("a file has no name")
    check_relative(names)


def check_staging(staging: str, target: str) -> None:
    """Refuse a staging folder that is not one of a target of files: beside it, or within it on a volume of its own."""
    check_path(target)
    check_path(staging)
    above, _, name = staging.rpartition("/")
    beside, _, own = target.rstrip("/").rpartition("/")
    is_beside = _is_same(above, beside) and re.fullmatch(rf"\.penstock-{re.escape(own)}-{MARK}", name)
    if not is_beside and not (_is_same(above, target) and re.fullmatch(rf"\.penstock-rows-{MARK}", name)):
        raise ValueError(f"{staging!r} is not a staging folder of {target!r}")


def check_within(path: str, folder: str, name: re.Pattern[str] | None = None) -> None:
    """Refuse a path that is not below a folder, or whose last part has another name."""
    check_path(folder)
    check_path(path)
    (scheme, inner), (of_folder, outer) = _parts(path), _parts(folder)
    # A catalogue may name a table's folder without its file system or its server, which are Spark's defaults then.
    is_default = folder.startswith("/") or (of_folder.endswith("://") and scheme.startswith(of_folder))
    is_below = inner.startswith(f"{outer}/") and (scheme == of_folder or is_default)
    if not is_below or (name is not None and name.fullmatch(path.rpartition("/")[2]) is None):
        raise ValueError(f"{path!r} is not a folder that Penstock makes within {folder!r}")


def _is_same(path: str, other: str) -> bool:
    return _parts(path) == _parts(other)


def _parts(path: str) -> tuple[str, str]:
    """Return the file system of a path, and its folders; ``file:/a``, ``file:///a`` and ``/a`` are the same."""
    uri = _URI.fullmatch(path)
    system, folders = ("", path) if uri is None else (f"{uri[1]}://{uri[2] or ''}".lower(), uri[3])
    return "" if system == "file://" else system, re.sub("/+", "/", folders).rstrip("/")
