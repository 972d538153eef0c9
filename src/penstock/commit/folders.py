"""What files a job has ready: whole folders, which change places with those of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import folder_of, move, move_files, remove_files, remove_made, sync_folders, unmoved
from penstock.commit.names import check_files, check_relative, check_staging
from penstock.commit.prepared import Prepared
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFolders(Prepared):
    """A target of which whole folders are new: itself, or some of its partitions.

    Only for file systems that rename a folder in one step. A folder that is there and the new one change places in one
    step where that can be; elsewhere the old one is moved aside first. A hidden file within the new one tells where it
    is: in its place, still hidden, or replaced by somebody since.

    Parameters
    ----------
    path
        The target.
    staging
        Where the new rows lie, hidden.
    folders
        What is replaced or new, relative to both; empty text for the whole target.
    made
        Folders above partitions that are not there yet.
    moved_files
        Files of the staging folder that are put into the target beside the partitions.
    replaces
        Whether a folder that is there may be replaced; if not, one that has appeared meanwhile is an error.
    """

    kind: ClassVar[str] = "folders"
    is_reversible: ClassVar[bool] = True

    path: str
    staging: str
    folders: tuple[str, ...]
    made: tuple[str, ...] = ()
    moved_files: tuple[str, ...] = ()
    replaces: bool = True

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
        """The folders, and the file of a token: nobody else may write it meanwhile."""
        tokens = (name for name in self.moved_files if is_token_file(name))
        return tuple(f"{self.path}/{name}".rstrip("/") for name in (*self.folders, *tokens))

    @property
    def hidden(self) -> tuple[str, ...]:
        """The folder of the new rows, and that of the old ones."""
        return self.staging, f"{self.staging}-old"

    @property
    def is_atomic(self) -> bool:
        """No: a job that comes after it has to wait until it can no longer be undone."""
        return False

    def check_names(self) -> None:
        """Refuse a staging folder that is not the target's, and paths that lead out of the target."""
        check_staging(self.staging, self.path)
        check_relative((*self.folders, *self.made))
        check_files(self.moved_files)

    @property
    def _mark(self) -> str:
        """The name of the hidden files: without colons, as Hadoop makes no checksum of a file with one."""
        return f".new-{self.staging.rpartition('/')[2].lstrip('.').replace(':', '_')}"

    def ready(self, access: Access) -> None:
        """Put the hidden files into the new folders."""
        for _, staged, _ in self._places(access):
            staged.child(self._mark).touch()
            staged.sync_entries()

    def commit(self, access: Access) -> None:
        """Put the new folders into their places; one that is no longer hidden is there, or was replaced since."""
        self._commit(access, self.moved_files)

    def complete(self, access: Access) -> None:
        """Put what still waits for it into its place."""
        self._commit(access, unmoved(access, self.staging, self.moved_files))

    def _commit(self, access: Access, files: tuple[str, ...]) -> None:
        for name in self.made:
            Folder(access.bridge, self.path).child(name).make()
        for place, staged, old in self._places(access):
            if self._is_new(staged):
                self._put(place, staged, old)
        move_files(access, self.staging, self.path, files)
        sync_folders(access, (folder_of(one) for one in (self.path, *self.replaced, *self._files)))

    def _put(self, place: Folder, staged: Folder, old: Folder) -> None:
        if place.exists():
            if not self.replaces:
                raise SinkError.exists(self.path)
            if staged.exchange(place):
                return
            old.parent.make()
            move(place, old)
        place.parent.make()
        move(staged, place)
        if not self._is_new(place):  # the path was taken just then: many file systems move into a folder that is there
            place.child(staged.name).delete()
            raise SinkError.exists(self.path)

    def is_committed(self, access: Access) -> bool:
        """Whether no folder waits to be put into its place."""
        return not any(self._is_new(staged) for _, staged, _ in self._places(access)) and all(
            Folder(access.bridge, name).exists() for name in self._files
        )

    def undo(self, access: Access) -> None:
        """Put the old folders back.

        Raises
        ------
        SinkError
            If somebody else has put rows in the place of old ones, which stay where they are then; all else is done.
        """
        remove_files(access, self.staging, self.path, self.moved_files)
        kept: list[tuple[Folder, Folder]] = []
        for place, staged, old in self._places(access):
            if self._is_new(place):
                self._take_back(place, staged, old)
            elif not self._bring_back(old, place):
                kept.append((place, old))
        remove_made(access, self.path, self.made)
        sync_folders(access, (folder_of(one) for one in (self.path, *self.replaced, *self._files)))
        if kept:
            raise SinkError.in_the_way([(str(place), str(old)) for place, old in kept])
        self._clean(access)

    @staticmethod
    def _take_back(place: Folder, staged: Folder, old: Folder) -> None:
        """Hide the new rows again, and put the old ones where they were."""
        if not old.exists():
            if not staged.exists():
                move(place, staged)
                return
            if staged.exchange(place):
                return
            old.parent.make()  # they have changed places, but cannot from this machine: from here on as elsewhere
            move(staged, old)
        move(place, staged)
        move(old, place)

    @staticmethod
    def _bring_back(old: Folder, place: Folder) -> bool:
        """Put the old rows where nothing is, or nothing but an empty folder; return whether none wait any more."""
        if not old.exists():
            return True
        place.remove_if_empty()
        if not place.exists():
            move(old, place)
            return True
        return not old.exists()  # another process has brought them back just then

    def finish(self, access: Access) -> None:
        """Remove what was replaced, and the hidden files."""
        self._clean(access)
        for place, _, _ in self._places(access):
            place.child(self._mark).delete()

    def _clean(self, access: Access) -> None:
        for folder in (self.staging, self._old):
            Folder(access.bridge, folder).delete()

    @property
    def _files(self) -> tuple[str, ...]:
        return tuple(f"{self.path}/{name}" for name in self.moved_files)

    @property
    def _old(self) -> str:
        return f"{self.staging}-old"

    def _is_new(self, folder: Folder) -> bool:
        return folder.child(self._mark).exists()

    def _places(self, access: Access) -> Iterator[tuple[Folder, Folder, Folder]]:
        """Iterate over the folders: in the target, in the staging folder, and where the old one is moved aside."""
        roots = [Folder(access.bridge, root) for root in (self.path, self.staging, self._old)]
        for name in self.folders:
            place, staged, old = (root.child(name) if name else root for root in roots)
            yield place, staged, old
