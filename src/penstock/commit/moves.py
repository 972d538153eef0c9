"""Moving files and folders, so that doing it again, or taking it back, harms nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.commit.file_tokens import is_token_file, is_written_by
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.commit.prepared import Access

MARKER = "_SUCCESS"


def move(source: Folder, target: Folder) -> None:
    """Rename onto a path that is free.

    Raises
    ------
    SinkError
        If the path is taken, or the file system refuses.
    """
    if target.exists() or not source.move_to(target):
        raise SinkError(f"cannot move {source} to {target}", cause="the file system refused, or the path is taken")


def move_files(access: Access, staging: str, path: str, names: Iterable[str]) -> None:
    """Move files; those that have been moved before stay."""
    for name in names:
        source, target = Folder(access.bridge, f"{staging}/{name}"), Folder(access.bridge, f"{path}/{name}")
        if source.exists() or not target.exists():
            move(source, target)


def remove_files(access: Access, staging: str, path: str, names: tuple[str, ...]) -> None:
    """Remove files that were added; where there are none nothing happens, and the token of another run stays."""
    for name in reversed(names):
        file = Folder(access.bridge, f"{path}/{name}")
        if not is_token_file(name) or (file.exists() and is_written_by(file, staging)):
            file.delete()


def remove_made(access: Access, path: str, made: tuple[str, ...]) -> None:
    """Remove folders that were made for new rows, the deepest first; one that somebody has written to stays."""
    for name in sorted(made, key=lambda one: (bool(one), one.count("/")), reverse=True):
        folder = Folder(access.bridge, f"{path}/{name}" if name else path)
        if folder.exists() and [one for one, _, _ in folder.entries()] == [MARKER]:
            folder.child(MARKER).delete()
        folder.remove_if_empty()


def sync_folders(access: Access, paths: Iterable[str]) -> None:
    """Let what was moved into folders, or out of them, survive a loss of power."""
    for path in sorted(set(paths)):
        Folder(access.bridge, path).sync_entries()


def folder_of(path: str) -> str:
    """Return the folder in which a path lies."""
    return path.rpartition("/")[0]
