"""Prepared records of whole folders, which are exchanged with those of the target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import PreparedMoves, folder_of, move, move_files, sync_folders
from penstock.commit.names import check_files, check_relative, check_staging
from penstock.errors import SinkError
from penstock.spark.io.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFolders(PreparedMoves):
    """New folders of a target: the whole target, or some of its partitions.

    Only for file systems that rename a folder atomically. An existing folder is exchanged with the new folder
    atomically if the file system can do that; otherwise it is moved aside first. A hidden file in the new folder shows
    where that folder is: in the target, still staged, or replaced by another program since.

    `folders` are the new or replaced folders, relative to both; an empty string is the whole target. `new_folders` is
    folders above partitions that do not exist yet (`made` in journals). `moved_files` is files of the staging folder
    that are moved into the target beside the partitions. `replaces` says whether an existing folder may be replaced; if
    not, a folder that appears during the job is an error.
    """

    kind: ClassVar[str] = "folders"

    folders: tuple[str, ...]
    new_folders: tuple[str, ...] = field(default=(), metadata={"key": "made"})
    moved_files: tuple[str, ...] = ()
    replaces: bool = True

    @property
    def replaced(self) -> tuple[str, ...]:
        """The folders, and token files, which no other job may write meanwhile."""
        tokens = (name for name in self.moved_files if is_token_file(name))
        return tuple(f"{self.path}/{name}".rstrip("/") for name in (*self.folders, *tokens))

    @property
    def is_atomic(self) -> bool:
        """False: a later job has to wait until this commit can no longer be undone."""
        return False

    def check_names(self) -> None:
        """Reject a staging folder of another target, and paths outside the target."""
        check_staging(self.staging, self.path)
        check_relative((*self.folders, *self.new_folders))
        check_files(self.moved_files)

    @property
    def _mark(self) -> str:
        """The name of the hidden files; without colons, as Hadoop cannot checksum a file with a colon in its name."""
        return f".new-{self.staging.rpartition('/')[2].lstrip('.').replace(':', '_')}"

    def ready(self, access: Access) -> None:
        """Write the hidden files into the new folders."""
        for _, staged, _ in self._folder_triples(access):
            staged.child(self._mark).touch()
            staged.sync_entries()

    @property
    def _moved_names(self) -> tuple[str, ...]:
        return self.moved_files

    def _move(self, access: Access, files: tuple[str, ...]) -> None:
        for name in self.new_folders:
            Folder(access.bridge, self.path).child(name).make()
        for live, staged, old in self._folder_triples(access):
            if self._is_new(staged):
                self._move_in(live, staged, old)
        move_files(access, self.staging, self.path, files)
        self._sync(access)

    def _move_in(self, live: Folder, staged: Folder, old: Folder) -> None:
        if live.exists():
            if not self.replaces:
                raise SinkError.exists(self.path)
            if staged.exchange(live):
                return
            old.parent.make()
            move(live, old)
        live.parent.make()
        move(staged, live)
        if not self._is_new(live):  # another program has just created the path, and `move` moved into its folder
            live.child(staged.name).delete()
            raise SinkError.exists(self.path)

    def is_committed(self, access: Access) -> bool:
        """Whether no folder and no file is still staged."""
        return not any(self._is_new(staged) for _, staged, _ in self._folder_triples(access)) and all(
            Folder(access.bridge, name).exists() for name in self._files
        )

    def undo(self, access: Access) -> None:
        """Restore the old folders.

        Raise `SinkError` if another program has written rows to the path of a replaced folder. The replaced folder then
        stays where it is; everything else is undone.
        """
        self._remove_files(access)
        blocked: list[tuple[Folder, Folder]] = []
        for live, staged, old in self._folder_triples(access):
            if self._is_new(live):
                self._swap_back(live, staged, old)
            elif not self._restore(old, live):
                blocked.append((live, old))
        self._remove_new_folders(access, self.new_folders)
        self._sync(access)
        if blocked:
            raise SinkError.cannot_restore([(str(live), str(old)) for live, old in blocked])
        super().finish(access)

    def _sync(self, access: Access) -> None:
        sync_folders(access, (folder_of(path) for path in (self.path, *self.replaced, *self._files)))

    @staticmethod
    def _swap_back(live: Folder, staged: Folder, old: Folder) -> None:
        """Stage the new rows again, and restore the old ones."""
        if not old.exists():
            if not staged.exists():
                move(live, staged)
                return
            if staged.exchange(live):
                return
            old.parent.make()  # this machine cannot exchange folders, though the committing machine could: rename twice
            move(staged, old)
        move(live, staged)
        move(old, live)

    @staticmethod
    def _restore(old: Folder, live: Folder) -> bool:
        """Move the old rows back unless a folder with files is in the way; return whether none are left to move."""
        if not old.exists():
            return True
        live.remove_if_empty()
        if not live.exists():
            move(old, live)
            return True
        return not old.exists()  # another process has just restored them

    def finish(self, access: Access) -> None:
        """Remove the replaced rows and the hidden files."""
        super().finish(access)
        for live, _, _ in self._folder_triples(access):
            live.child(self._mark).delete()

    @property
    def _files(self) -> tuple[str, ...]:
        return tuple(f"{self.path}/{name}" for name in self.moved_files)

    def _is_new(self, folder: Folder) -> bool:
        return folder.child(self._mark).exists()

    def _folder_triples(self, access: Access) -> Iterator[tuple[Folder, Folder, Folder]]:
        """Yield for each folder its path in the target, in the staging folder and in that of replaced rows."""
        roots = [Folder(access.bridge, root) for root in (self.path, *self.hidden)]
        for name in self.folders:
            live, staged, old = (root.child(name) if name else root for root in roots)
            yield live, staged, old
