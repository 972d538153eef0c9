"""What files a job has ready: single files, which are put beside those of the target, or in their stead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import MARKER, folder_of, move, move_files, remove_files, remove_made, sync_folders, unmoved
from penstock.commit.names import check_files, check_relative, check_staging
from penstock.commit.prepared import Prepared
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFiles(Prepared):
    """Files that are added to a folder, each by a rename; their names are not there yet.

    Where a file system renames folders file by file (object stores), files that are replaced are moved aside first.

    Parameters
    ----------
    path
        The target.
    staging
        Where they lie, hidden.
    files
        Relative to both, in the order in which they appear.
    made
        Folders that are not there yet, relative to the target; empty text for the target itself.
    unmarked
        Partitions whose marker is away while files are missing.
    away
        Files of the target that are replaced, relative to it.
    owned
        Folders that nobody else may write to before all is done, relative to the target; empty text for all of it.
    """

    kind: ClassVar[str] = "files"
    is_reversible: ClassVar[bool] = True

    path: str
    staging: str
    files: tuple[str, ...]
    made: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The path."""
        return self.path

    @property
    def folder(self) -> str:
        """The path."""
        return self.path

    @property
    def replaced(self) -> tuple[str, ...]:
        """The folders whose files are replaced, and the file of a token: nobody else may write it meanwhile."""
        tokens = (name for name in self.files if is_token_file(name))
        return tuple(sorted(f"{self.path}/{name}".rstrip("/") for name in {*self.owned, *tokens}))

    @property
    def added(self) -> tuple[str, ...]:
        """The folders that get files."""
        return tuple(sorted({folder_of(f"{self.path}/{name}") for name in self.files}))

    @property
    def hidden(self) -> tuple[str, ...]:
        """The folder of the new rows, and that of the old ones."""
        return self.staging, f"{self.staging}-old"

    @property
    def is_atomic(self) -> bool:
        """Whether there is nothing to do: a file alone may be added to what another job takes back just then."""
        return not (self.files or self.unmarked or self.made or self.away)

    def check_names(self) -> None:
        """Refuse a staging folder that is not the target's, and paths that lead out of the target."""
        check_staging(self.staging, self.path)
        check_files((*self.files, *self.away))
        check_relative((*self.made, *self.unmarked, *self.owned))

    def ready(self, access: Access) -> None:
        """Make the folders that markers are moved to."""
        for name in self.unmarked:
            self._marker_aside(access, name).parent.make()

    def commit(self, access: Access) -> None:
        """Move every file; what is replaced goes aside first, and markers of partitions are away meanwhile."""
        self._commit(access, self.files)

    def complete(self, access: Access) -> None:
        """Move the files that still wait for it."""
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
        self._mark_again(access)
        sync_folders(access, (*self.added, *map(folder_of, self.added)))

    def is_committed(self, access: Access) -> bool:
        """Whether every file is in its place, and none of those that are replaced."""
        target = Folder(access.bridge, self.path)
        return all(target.child(name).exists() for name in self.files) and not any(
            target.child(name).exists() for name in self.away
        )

    def undo(self, access: Access) -> None:
        """Remove the files again, and bring back those that were replaced."""
        remove_files(access, self.staging, self.path, self.files)
        target = Folder(access.bridge, self.path)
        for name in self.away:
            file, aside = target.child(name), self._aside(access, name)
            if aside.exists() and not file.exists():
                file.parent.make()
                move(aside, file)
        self._mark_again(access)
        remove_made(access, self.path, self.made)
        sync_folders(access, (*self.added, *map(folder_of, self.added)))
        self.finish(access)

    def finish(self, access: Access) -> None:
        """Remove the staging folder, and what was replaced."""
        for folder in (self.staging, f"{self.staging}-old"):
            Folder(access.bridge, folder).delete()

    def _aside(self, access: Access, name: str) -> Folder:
        return Folder(access.bridge, f"{self.staging}-old/{name}")

    def _marker_aside(self, access: Access, name: str) -> Folder:
        return Folder(access.bridge, f"{self.staging}/.penstock-markers/{name}/{MARKER}")

    def _mark_again(self, access: Access) -> None:
        for name in self.unmarked:
            aside, marker = self._marker_aside(access, name), Folder(access.bridge, f"{self.path}/{name}/{MARKER}")
            if aside.exists() and not marker.exists():
                move(aside, marker)
