"""Prepared records of single files that are added to a folder or replace files in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import MARKER, PreparedMoves, folder_of, move, move_files, sync_folders
from penstock.commit.names import check_files, check_relative, check_staging
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFiles(PreparedMoves):
    """Files that are added to a folder, each by a rename to a name that does not exist yet.

    On file systems that rename folders file by file (object stores), replaced files are moved aside first.

    All paths are relative, and an empty string is the target itself. `files` are in the order in which they become
    visible. `new_folders` do not exist yet (`made` in journals). `unmarked` are partitions whose ``_SUCCESS`` marker is
    moved aside until all files are in the target. `away` are files of the target that are replaced. `owned` are folders
    that no other job may write to until the commit ends.
    """

    kind: ClassVar[str] = "files"

    files: tuple[str, ...]
    new_folders: tuple[str, ...] = field(default=(), metadata={"key": "made"})
    unmarked: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()

    @property
    def replaced(self) -> tuple[str, ...]:
        """The folders whose files are replaced, and token files, which no other job may write meanwhile."""
        tokens = (name for name in self.files if is_token_file(name))
        return tuple(sorted(f"{self.path}/{name}".rstrip("/") for name in {*self.owned, *tokens}))

    @property
    def added(self) -> tuple[str, ...]:
        """The folders that get files."""
        return tuple(sorted({folder_of(f"{self.path}/{name}") for name in self.files}))

    @property
    def is_atomic(self) -> bool:
        """Whether the commit has no steps; even a single added file can collide with the rollback of another job."""
        return not (self.files or self.unmarked or self.new_folders or self.away)

    def check_names(self) -> None:
        """Reject a staging folder of another target, and paths outside the target."""
        check_staging(self.staging, self.path)
        check_files((*self.files, *self.away))
        check_relative((*self.new_folders, *self.unmarked, *self.owned))

    def ready(self, access: Access) -> None:
        """Create the folders that markers are moved to."""
        for _, aside in self._markers(access):
            aside.parent.make()

    @property
    def _moved_names(self) -> tuple[str, ...]:
        return self.files

    def _move(self, access: Access, files: tuple[str, ...]) -> None:
        """Move files into the target; replaced files and the markers of partitions are moved aside first."""
        target = Folder(access.bridge, self.path)
        for file, aside in (*self._markers(access), *self._replaced_files(access)):
            if file.exists() and not aside.exists():
                aside.parent.make()
                move(file, aside)
        for folder in self.added:
            target.at(folder).make()
        move_files(access, self.staging, self.path, files)
        self._restore_markers(access)
        sync_folders(access, (*self.added, *map(folder_of, self.added)))

    def is_committed(self, access: Access) -> bool:
        """Whether every new file is in the target, and no replaced file."""
        target = Folder(access.bridge, self.path)
        return all(target.child(name).exists() for name in self.files) and not any(
            target.child(name).exists() for name in self.away
        )

    def undo(self, access: Access) -> None:
        """Remove the added files, and restore the replaced ones."""
        self._remove_files(access)
        for file, aside in self._replaced_files(access):
            if aside.exists() and not file.exists():
                file.parent.make()
                move(aside, file)
        self._restore_markers(access)
        self._remove_new_folders(access, self.new_folders)
        sync_folders(access, (*self.added, *map(folder_of, self.added)))
        self.finish(access)

    def _markers(self, access: Access) -> Iterator[tuple[Folder, Folder]]:
        """Yield the markers to move aside, and their temporary paths."""
        names = [f"{name}/{MARKER}" for name in self.unmarked]
        return _paired(access, self.path, f"{self.staging}/.penstock-markers", names)

    def _replaced_files(self, access: Access) -> Iterator[tuple[Folder, Folder]]:
        """Yield the files to move aside, and their temporary paths."""
        return _paired(access, self.path, f"{self.staging}-old", self.away)

    def _restore_markers(self, access: Access) -> None:
        for marker, aside in self._markers(access):
            if aside.exists() and not marker.exists():
                move(aside, marker)


def _paired(access: Access, path: str, other: str, names: Sequence[str]) -> Iterator[tuple[Folder, Folder]]:
    if names:
        folder, other_folder = Folder(access.bridge, path), Folder(access.bridge, other)
        for name in names:
            yield folder.child(name), other_folder.child(name)
