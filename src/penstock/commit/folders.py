"""What files a job has ready: folders that change places with those of the target, or files that are moved there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.prepared import Prepared
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.commit.prepared import Access

MARKER = "_SUCCESS"


@dataclass(frozen=True)
class PreparedFolders(Prepared):
    """A target of which whole folders are new: itself, or some of its partitions.

    A folder that is there and the new one change places in one step where the file system can do that; a hidden file
    within the new one tells whether they have. Elsewhere the old one is moved aside first.

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
    is_single_step
        Whether all of it is one rename.
    """

    kind: ClassVar[str] = "folders"
    is_reversible: ClassVar[bool] = True

    path: str
    staging: str
    folders: tuple[str, ...]
    made: tuple[str, ...] = ()
    moved_files: tuple[str, ...] = ()
    is_single_step: bool = False

    @property
    def target(self) -> str:
        """The path."""
        return self.path

    @property
    def folder(self) -> str:
        """The path."""
        return self.path

    @property
    def is_atomic(self) -> bool:
        """Whether all of it is one rename."""
        return self.is_single_step

    @property
    def _mark(self) -> str:
        """The name of the hidden files."""
        return f".new-{self.staging.rpartition('/')[2].lstrip('.')}"

    def ready(self, access: Access) -> None:
        """Put the hidden files into the new folders."""
        for _, staged, _ in self._places(access):
            staged.child(self._mark).touch()

    def commit(self, access: Access) -> None:
        """Put the new folders into their places."""
        for name in self.made:
            Folder(access.bridge, self.path).child(name).make()
        for place, staged, old in self._places(access):
            if self._is_new(place):
                continue
            if not place.exists():
                place.parent.make()
                move(staged, place)
            elif not staged.exchange(place):
                if not old.exists():
                    old.parent.make()
                    move(place, old)
                move(staged, place)
        move_files(access, self.staging, self.path, self.moved_files)

    def is_committed(self, access: Access) -> bool:
        """Whether every folder is in its place."""
        return all(self._is_new(place) for place, _, _ in self._places(access)) and all(
            Folder(access.bridge, self.path).child(name).exists() for name in self.moved_files
        )

    def undo(self, access: Access) -> None:
        """Put the old folders back."""
        remove_files(access, self.path, self.moved_files)
        for place, staged, old in self._places(access):
            if old.exists():
                if self._is_new(place):
                    move(place, staged)
                move(old, place)
            elif self._is_new(place):
                if not staged.exists():
                    move(place, staged)
                elif not staged.exchange(place):
                    raise SinkError(f"{place} and {staged} do not change places", hint="the old rows are in the second")
        remove_made(access, self.path, self.made)
        self._clean(access)

    def finish(self, access: Access) -> None:
        """Remove what was replaced, and the hidden files."""
        self._clean(access)
        for place, _, _ in self._places(access):
            place.child(self._mark).delete()

    def _clean(self, access: Access) -> None:
        for folder in (self.staging, self._old):
            Folder(access.bridge, folder).delete()

    @property
    def _old(self) -> str:
        return f"{self.staging}-old"

    def _is_new(self, place: Folder) -> bool:
        return place.child(self._mark).exists()

    def _places(self, access: Access) -> Iterator[tuple[Folder, Folder, Folder]]:
        """Iterate over the folders: in the target, in the staging folder, and where the old one is moved aside."""
        for name in self.folders:
            below = f"/{name}" if name else ""
            place, staged, old = (Folder(access.bridge, root + below) for root in (self.path, self.staging, self._old))
            yield place, staged, old


@dataclass(frozen=True)
class PreparedFiles(Prepared):
    """Files that are added to a folder, each by a rename; their names are not there yet.

    Parameters
    ----------
    path
        The target.
    staging
        Where they lie, hidden.
    files
        Relative to both, in the order in which they appear.
    made
        Folders that are not there yet, relative to the target.
    unmarked
        Partitions whose marker is away while files are missing.
    """

    kind: ClassVar[str] = "files"
    is_reversible: ClassVar[bool] = True

    path: str
    staging: str
    files: tuple[str, ...]
    made: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The path."""
        return self.path

    @property
    def folder(self) -> str:
        """The path."""
        return self.path

    @property
    def is_atomic(self) -> bool:
        """Whether there is but one file, or none, and nothing else to do."""
        return len(self.files) < 2 and not (self.unmarked or self.made)

    def ready(self, access: Access) -> None:
        """Make the folders that markers are moved to."""
        for name in self.unmarked:
            self._aside(access, name).parent.make()

    def commit(self, access: Access) -> None:
        """Move every file; markers of partitions are away meanwhile."""
        target = Folder(access.bridge, self.path)
        for name in self.unmarked:
            marker = target.child(f"{name}/{MARKER}")
            if marker.exists():
                self._aside(access, name).parent.make()
                move(marker, self._aside(access, name))
        for name in self.made:
            target.child(name).make()
        move_files(access, self.staging, self.path, self.files)
        self._mark_again(access)

    def is_committed(self, access: Access) -> bool:
        """Whether every file is in its place."""
        target = Folder(access.bridge, self.path)
        return all(target.child(name).exists() for name in self.files)

    def undo(self, access: Access) -> None:
        """Remove the files again."""
        remove_files(access, self.path, self.files)
        self._mark_again(access)
        remove_made(access, self.path, self.made)
        Folder(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Remove the staging folder."""
        Folder(access.bridge, self.staging).delete()

    def _aside(self, access: Access, name: str) -> Folder:
        return Folder(access.bridge, f"{self.staging}/.penstock-markers/{name}/{MARKER}")

    def _mark_again(self, access: Access) -> None:
        for name in self.unmarked:
            aside, marker = self._aside(access, name), Folder(access.bridge, f"{self.path}/{name}/{MARKER}")
            if aside.exists() and not marker.exists():
                move(aside, marker)


def move(source: Folder, target: Folder) -> None:
    """Rename onto a path that is free.

    Raises
    ------
    SinkError
        If the path is taken, or the file system refuses.
    """
    if target.exists() or not source.move_to(target):
        raise SinkError(f"cannot move {source} to {target}", cause="the file system refused, or the path is taken")


def move_files(access: Access, staging: str, path: str, names: tuple[str, ...]) -> None:
    """Move files; those that have been moved before stay."""
    for name in names:
        source, target = Folder(access.bridge, f"{staging}/{name}"), Folder(access.bridge, f"{path}/{name}")
        if source.exists() or not target.exists():
            move(source, target)


def remove_files(access: Access, path: str, names: tuple[str, ...]) -> None:
    """Remove files that were added; where there are none nothing happens."""
    for name in reversed(names):
        Folder(access.bridge, f"{path}/{name}").delete()


def remove_made(access: Access, path: str, made: tuple[str, ...]) -> None:
    """Remove folders that were made for new rows, the deepest first; one that somebody has written to stays."""
    for name in sorted(made, key=lambda one: one.count("/"), reverse=True):
        folder = Folder(access.bridge, f"{path}/{name}")
        if folder.exists() and [one for one, _, _ in folder.entries()] == [MARKER]:
            folder.child(MARKER).delete()
        folder.remove_if_empty()
