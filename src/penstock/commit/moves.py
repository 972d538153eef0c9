"""Moves of files and folders that can be repeated and undone."""

from __future__ import annotations

import errno
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file, is_written_by
from penstock.commit.prepared import Prepared
from penstock.errors import SinkError
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.commit.prepared import Access

MARKER = "_SUCCESS"
_CROSS_DEVICE_HINT = (
    "files cannot be renamed across volumes, nor can folders of a container image: "
    "write to a folder that Spark has created on the volume"
)


@dataclass(frozen=True)
class PreparedMoves(Prepared):
    """Files or folders that are moved from a staging folder into a target folder."""

    is_reversible: ClassVar[bool] = True

    path: str
    staging: str

    @property
    def target(self) -> str:
        """The target folder."""
        return self.path

    @property
    def folder(self) -> str:
        """The target folder."""
        return self.path

    @property
    def hidden(self) -> tuple[str, ...]:
        """The folders of the new and of the replaced rows."""
        return self.staging, f"{self.staging}-old"

    @property
    @abstractmethod
    def _moved_names(self) -> tuple[str, ...]:
        """The files that are moved, relative to both folders, in the order in which they become visible."""

    @abstractmethod
    def _move(self, access: Access, files: tuple[str, ...]) -> None:
        """Move everything into the target, but of the files only some."""

    def commit(self, access: Access) -> None:
        """Move everything into the target; what was moved before is skipped."""
        self._move(access, self._moved_names)

    def complete(self, access: Access) -> None:
        """Move what is still staged."""
        staged = Folder(access.bridge, self.staging)
        self._move(access, tuple(name for name in self._moved_names if staged.child(name).exists()))

    def finish(self, access: Access) -> None:
        """Remove the staging folder and the replaced rows."""
        for folder in self.hidden:
            Folder(access.bridge, folder).delete()

    def _remove_files(self, access: Access) -> None:
        """Remove the moved files, if they exist, but not the marker and the tokens of other runs."""
        staged, live = Folder(access.bridge, self.staging), Folder(access.bridge, self.path)
        for name in reversed(self._moved_names):
            file = live.child(name)
            if name == MARKER:
                is_own = staged.exists() and not staged.child(name).exists()
            else:
                is_own = not is_token_file(name) or (file.exists() and is_written_by(file, self.staging))
            if is_own:
                file.delete()

    def _remove_new_folders(self, access: Access, new_folders: tuple[str, ...]) -> None:
        """Remove folders that were created for new rows, the deepest first, unless other jobs have written to them."""
        target = Folder(access.bridge, self.path)
        for name in sorted(new_folders, key=lambda relative: (bool(relative), relative.count("/")), reverse=True):
            folder = target.child(name) if name else target
            if folder.exists() and [entry for entry, _, _ in folder.entries()] == [MARKER]:
                folder.child(MARKER).delete()
            folder.remove_if_empty()


def move(source: Folder, target: Folder) -> None:
    """Rename a file or folder; raise `SinkError` if the path exists, or the file system refuses."""
    cause: OSError | None = None
    try:
        if not target.exists() and source.move_to(target):
            return
    except OSError as error:
        cause = error
    reason = "the file system refused, or the path exists" if cause is None else str(cause)
    hint = _CROSS_DEVICE_HINT if cause is not None and cause.errno == errno.EXDEV else None
    raise SinkError(f"cannot move {source} to {target}", cause=reason, hint=hint) from cause


def move_files(access: Access, staging: str, path: str, names: Iterable[str]) -> None:
    """Move files; skip those that were moved before, and a marker that the target already has."""
    staged, live = Folder(access.bridge, staging), Folder(access.bridge, path)
    for name in names:
        source, target = staged.child(name), live.child(name)
        if target.exists() and (name == MARKER or not source.exists()):
            continue
        try:
            move(source, target)
        except SinkError:
            if name != MARKER or not target.exists():
                raise


def sync_folders(access: Access, paths: Iterable[str]) -> None:
    """Sync the entries of folders, so that moves into and out of them survive a loss of power."""
    folder: Folder | None = None
    for path in sorted(set(paths)):
        folder = Folder(access.bridge, path) if folder is None else folder.at(path)
        folder.sync_entries()


def folder_of(path: str) -> str:
    """Return the parent folder of a path."""
    return path.rpartition("/")[0]
