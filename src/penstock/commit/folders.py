"""Commit record (what a sink is about to make visible) of whole folders, which can replace existing folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import PreparedMoves, move, move_files, parent_of, sync_folders
from penstock.commit.names import check_files, check_relative_paths, check_staging
from penstock.errors import SinkError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFolders(PreparedMoves):
    """New folders of a target: the whole target, or some of its partitions.

    The file system must rename a folder atomically. If it can also exchange two folders atomically, the new folder is
    exchanged with an existing folder; otherwise the existing folder is moved aside first. A hidden marker file in the
    new folder shows where the new folder is: in the target or in the staging folder. If the marker is in neither,
    another program has replaced the new folder.

    All paths are relative to the target and to the staging folder. `folders` are the new or replaced folders; an empty
    string is the whole target. `new_folders` (`made` in journals) are the parents that the partitions lack.
    `moved_files` are moved from the staging folder into the target beside the partitions. `may_replace` (`replaces`)
    says whether an existing folder may be replaced; if not, a folder that appears during the job is an error.
    """

    kind: ClassVar[str] = "folders"

    folders: tuple[str, ...]
    new_folders: tuple[str, ...] = field(default=(), metadata={"key": "made"})
    moved_files: tuple[str, ...] = ()
    may_replace: bool = field(default=True, metadata={"key": "replaces"})

    @property
    def exclusive_paths(self) -> tuple[str, ...]:
        """The folders, and the moved token files, which show that a write is done, as absolute paths."""
        tokens = (name for name in self.moved_files if is_token_file(name))
        return tuple(f"{self.path}/{name}".rstrip("/") for name in (*self.folders, *tokens))

    @property
    def is_atomic(self) -> bool:
        """False: other jobs have to wait until this commit can no longer be undone."""
        return False

    def check_names(self) -> None:
        """Reject a staging folder of another target, and paths outside the target."""
        check_staging(self.staging, self.path)
        check_relative_paths((*self.folders, *self.new_folders))
        check_files(self.moved_files)

    @property
    def _marker_name(self) -> str:
        """The name of the marker files; without colons, as Hadoop cannot checksum a file with a colon in its name."""
        return f".new-{self.staging.rpartition('/')[2].lstrip('.').replace(':', '_')}"

    def make_ready(self, access: Access) -> None:
        """Write the marker files into the new folders."""
        for _, staged, _ in self._folder_paths(access):
            staged.child(self._marker_name).touch()
            staged.sync_entries()

    @property
    def _moved_names(self) -> tuple[str, ...]:
        return self.moved_files

    def _move(self, access: Access, names: tuple[str, ...]) -> None:
        for name in self.new_folders:
            HadoopPath(access.bridge, self.path).child(name).make()
        for target, staged, aside in self._folder_paths(access):
            if self._is_new(staged):
                self._replace_folder(target, staged, aside)
        move_files(access, self.staging, self.path, names)
        self._sync(access)

    def _replace_folder(self, target: HadoopPath, staged: HadoopPath, aside: HadoopPath) -> None:
        if target.exists():
            if not self.may_replace:
                raise SinkError.already_exists(self.path)
            if staged.exchange(target):
                return
            aside.parent.make()
            move(target, aside)
        target.parent.make()
        move(staged, target)
        if not self._is_new(target):  # another program has just created the path, so `move` moved the folder into it
            target.child(staged.name).delete()
            raise SinkError.already_exists(self.path)

    def is_committed(self, access: Access) -> bool:
        """Whether no folder is staged any more, and every moved file is in the target."""
        return not any(self._is_new(staged) for _, staged, _ in self._folder_paths(access)) and all(
            HadoopPath(access.bridge, name).exists() for name in self._moved_paths
        )

    def undo(self, access: Access) -> None:
        """Restore the old folders.

        Raise `SinkError` if another program has written rows to the path of a replaced folder. The old rows of this
        path then stay in the hidden folder; everything else is undone.
        """
        self._remove_files(access)
        blocked: list[tuple[HadoopPath, HadoopPath]] = []
        for target, staged, aside in self._folder_paths(access):
            if self._is_new(target):
                self._restore_old(target, staged, aside)
            elif not self._move_back(aside, target):
                blocked.append((target, aside))
        self._remove_new_folders(access, self.new_folders)
        self._sync(access)
        if blocked:
            locations = "; ".join(f"those of {target} are in {aside}" for target, aside in blocked)
            raise SinkError(
                "the old rows cannot be restored",
                cause="another program has created a folder at their location, which cannot be replaced",
                hint=f"{locations}. Keep one of them: move the new folder aside, or remove the old rows. Then run "
                "`penstock recover`",
            )
        super().finish(access)  # not `self.finish`: no target has a marker file any more

    def _sync(self, access: Access) -> None:
        sync_folders(access, (parent_of(path) for path in (self.path, *self.exclusive_paths, *self._moved_paths)))

    @staticmethod
    def _restore_old(target: HadoopPath, staged: HadoopPath, aside: HadoopPath) -> None:
        """Move the new rows back to the staging folder, and the old rows to the target."""
        if not aside.exists():
            if not staged.exists():  # there were no old rows
                move(target, staged)
                return
            if staged.exchange(target):
                return
            aside.parent.make()  # this machine cannot exchange folders, although the committing machine could
            move(staged, aside)
        move(target, staged)
        move(aside, target)

    @staticmethod
    def _move_back(aside: HadoopPath, target: HadoopPath) -> bool:
        """Move the old rows back unless the target has files; return False if old rows could not be moved back."""
        if not aside.exists():
            return True
        target.remove_if_empty()
        if not target.exists():
            move(aside, target)
            return True
        return not aside.exists()  # another process has just moved the old rows back

    def finish(self, access: Access) -> None:
        """Remove the staging folder, the replaced rows and the marker files."""
        super().finish(access)
        for target, _, _ in self._folder_paths(access):
            target.child(self._marker_name).delete()

    @property
    def _moved_paths(self) -> tuple[str, ...]:
        return tuple(f"{self.path}/{name}" for name in self.moved_files)

    def _is_new(self, folder: HadoopPath) -> bool:
        """Whether a folder is a new folder of this record, which has the marker file."""
        return folder.child(self._marker_name).exists()

    def _folder_paths(self, access: Access) -> Iterator[tuple[HadoopPath, HadoopPath, HadoopPath]]:
        """Yield three paths for each folder: in the target, in the staging folder, in the folder of replaced rows."""
        roots = [HadoopPath(access.bridge, root) for root in (self.path, *self.hidden_folders)]
        for name in self.folders:
            target, staged, aside = (root.child(name) if name else root for root in roots)
            yield target, staged, aside
