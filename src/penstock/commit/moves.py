"""Moving files and folders, so that doing it again, or taking it back, harms nobody."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from penstock.commit.file_tokens import is_token_file, is_written_by
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.commit.prepared import Access

MARKER = "_SUCCESS"
_TO_ONE_VOLUME = (
    "nothing can be renamed from one volume into another, nor a folder that an image brings along: "
    "write to a folder that Spark has made on the volume"
)


def move(source: Folder, target: Folder) -> None:
    """Rename onto a path that is free.

    Raises
    ------
    SinkError
        If the path is taken, or the file system refuses.
    """
    cause: OSError | None = None
    try:
        if not target.exists() and source.move_to(target):
            return
    except OSError as error:
        cause = error
    why = "the file system refused, or the path is taken" if cause is None else str(cause)
    hint = _TO_ONE_VOLUME if cause is not None and cause.errno == errno.EXDEV else None
    raise SinkError(f"cannot move {source} to {target}", cause=why, hint=hint) from cause


def move_files(access: Access, staging: str, path: str, names: Iterable[str]) -> None:
    """Move files; those that have been moved before stay, and a marker that is there says what another would."""
    below, above = Folder(access.bridge, staging), Folder(access.bridge, path)
    for name in names:
        source, target = below.child(name), above.child(name)
        if target.exists() and (name == MARKER or not source.exists()):
            continue
        try:
            move(source, target)
        except SinkError:
            if name != MARKER or not target.exists():
                raise


def unmoved(access: Access, staging: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the files that have not been moved yet."""
    below = Folder(access.bridge, staging)
    return tuple(name for name in names if below.child(name).exists())


def remove_files(access: Access, staging: str, path: str, names: tuple[str, ...]) -> None:
    """Remove files that were added; where there are none nothing happens, and what another run has put there stays."""
    below, above = Folder(access.bridge, staging), Folder(access.bridge, path)
    for name in reversed(names):
        file = above.child(name)
        if name == MARKER:
            is_own = below.exists() and not below.child(name).exists()
        else:
            is_own = not is_token_file(name) or (file.exists() and is_written_by(file, staging))
        if is_own:
            file.delete()


def remove_made(access: Access, path: str, made: tuple[str, ...]) -> None:
    """Remove folders that were made for new rows, the deepest first; one that somebody has written to stays."""
    target = Folder(access.bridge, path)
    for name in sorted(made, key=lambda one: (bool(one), one.count("/")), reverse=True):
        folder = target.child(name) if name else target
        if folder.exists() and [one for one, _, _ in folder.entries()] == [MARKER]:
            folder.child(MARKER).delete()
        folder.remove_if_empty()


def sync_folders(access: Access, paths: Iterable[str]) -> None:
    """Let what was moved into folders, or out of them, survive a loss of power."""
    near: Folder | None = None
    for path in sorted(set(paths)):
        near = Folder(access.bridge, path) if near is None else near.at(path)
        near.sync_entries()


def folder_of(path: str) -> str:
    """Return the folder in which a path lies."""
    return path.rpartition("/")[0]
