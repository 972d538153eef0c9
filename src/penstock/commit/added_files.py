"""Prepared records of single files that are added to a folder or replace files in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import (
    MARKER,
    folder_of,
    move,
    move_files,
    remove_files,
    remove_new_folders,
    sync_folders,
    unmoved,
)
from penstock.commit.names import check_files, check_relative, check_staging
from penstock.commit.prepared import Prepared
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFiles(Prepared):
    """Files that are added to a folder, each by a rename to a name that does not exist yet.

    On file systems that rename folders file by file (object stores), replaced files are moved aside first.

    Parameters
    ----------
    path
        The target folder.
    staging
        The hidden folder that holds the files until the commit.
    files
        Paths relative to both folders, in the order in which the files become visible.
    new_folders
        Folders that do not exist yet, relative to the target; an empty string is the target itself. Journals call
        them ``made``.
    unmarked
        Partitions whose ``_SUCCESS`` marker is moved aside until all files are in the target.
    away
        Files of the target that are replaced, relative to it.
    owned
        Folders that no other job may write to until the commit ends, relative to the target; an empty string is the
        whole target.
    """

    kind: ClassVar[str] = "files"
    is_reversible: ClassVar[bool] = True

    path: str
    staging: str
    files: tuple[str, ...]
    new_folders: tuple[str, ...] = field(default=(), metadata={"key": "made"})
    unmarked: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The target folder."""
        return self.path

    @property
    def folder(self) -> str:
        """The target folder."""
        return self.path

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
    def hidden(self) -> tuple[str, ...]:
        """The folders of the new and of the replaced files."""
        return self.staging, f"{self.staging}-old"

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
        for name in self.unmarked:
            self._marker_aside(access, name).parent.make()

    def commit(self, access: Access) -> None:
        """Move every file into the target; replaced files and the markers of partitions are moved aside first."""
        self._commit(access, self.files)

    def complete(self, access: Access) -> None:
        """Move the files that are still in the staging folder."""
        self._commit(access, unmoved(access, self.staging, self.files))

    def _commit(self, access: Access, files: tuple[str, ...]) -> None:
        target = Folder(access.bridge, self.path)
        for name in self.unmarked:
            marker, aside = target.child(f"{name}/{MARKER}"), self._marker_aside(access, name)
            if marker.exists() and not aside.exists():
                aside.parent.make()
                move(marker, aside)
        for name in self.away:
            file, aside = target.child(name), self._aside(access, name)
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
        remove_files(access, self.staging, self.path, self.files)
        target = Folder(access.bridge, self.path)
        for name in self.away:
            file, aside = target.child(name), self._aside(access, name)
            if aside.exists() and not file.exists():
                file.parent.make()
                move(aside, file)
        self._restore_markers(access)
        remove_new_folders(access, self.path, self.new_folders)
        sync_folders(access, (*self.added, *map(folder_of, self.added)))
        self.finish(access)

    def finish(self, access: Access) -> None:
        """Remove the staging folder and the replaced files."""
        for folder in (self.staging, f"{self.staging}-old"):
            Folder(access.bridge, folder).delete()

    def _aside(self, access: Access, name: str) -> Folder:
        return Folder(access.bridge, f"{self.staging}-old/{name}")

    def _marker_aside(self, access: Access, name: str) -> Folder:
        return Folder(access.bridge, f"{self.staging}/.penstock-markers/{name}/{MARKER}")

    def _restore_markers(self, access: Access) -> None:
        for name in self.unmarked:
            aside, marker = self._marker_aside(access, name), Folder(access.bridge, f"{self.path}/{name}/{MARKER}")
            if aside.exists() and not marker.exists():
                move(aside, marker)
