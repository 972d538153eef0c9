"""Commit record (what a sink is about to make visible) of files that are added to a folder, or replace its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file
from penstock.commit.moves import SUCCESS_MARKER, PreparedMoves, move, move_files, parent_of, sync_folders
from penstock.commit.names import check_files, check_relative_paths, check_staging
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access


@dataclass(frozen=True)
class PreparedFiles(PreparedMoves):
    """Files that are added to a folder, each by a rename to a name that does not exist yet.

    Where a folder cannot be renamed atomically (in an object store, or if the target is a mount point), the record can
    also replace files of the target: the commit moves the old files aside before it adds the new files.

    The paths in these fields are relative to the target, and an empty string is the target itself. `files` are in the
    order in which they become visible. `new_folders` do not exist yet (`made` in journals). `hidden_marker_partitions`
    (`unmarked`) are partitions whose ``_SUCCESS`` marker is moved aside until all files are in the target.
    `replaced_files` (`away`) are the files of the target to replace. `exclusive_folders` (`owned`) are folders that no
    other job may write to until the commit ends.
    """

    kind: ClassVar[str] = "files"

    files: tuple[str, ...]
    new_folders: tuple[str, ...] = field(default=(), metadata={"key": "made"})
    hidden_marker_partitions: tuple[str, ...] = field(default=(), metadata={"key": "unmarked"})
    replaced_files: tuple[str, ...] = field(default=(), metadata={"key": "away"})
    exclusive_folders: tuple[str, ...] = field(default=(), metadata={"key": "owned"})

    @property
    def exclusive_paths(self) -> tuple[str, ...]:
        """The exclusive folders, and the added token files, which show that a write is done, as absolute paths."""
        tokens = (name for name in self.files if is_token_file(name))
        return tuple(sorted(f"{self.path}/{name}".rstrip("/") for name in {*self.exclusive_folders, *tokens}))

    @property
    def extended_folders(self) -> tuple[str, ...]:
        """The folders that contain the added files, as absolute paths."""
        return tuple(sorted({parent_of(f"{self.path}/{name}") for name in self.files}))

    @property
    def is_atomic(self) -> bool:
        """False unless the commit changes nothing: even a single rename can collide with another job's rollback."""
        return not (self.files or self.hidden_marker_partitions or self.new_folders or self.replaced_files)

    def check_names(self) -> None:
        """Reject a staging folder of another target, and paths outside the target."""
        check_staging(self.staging, self.path)
        check_files((*self.files, *self.replaced_files))
        check_relative_paths((*self.new_folders, *self.hidden_marker_partitions, *self.exclusive_folders))

    def make_ready(self, access: Access) -> None:
        """Create the folders to which the ``_SUCCESS`` markers are moved."""
        for _, aside in self._marker_paths(access):
            aside.parent.make()

    @property
    def _moved_names(self) -> tuple[str, ...]:
        return self.files

    def _move(self, access: Access, names: tuple[str, ...]) -> None:
        """Move files into the target, after moving replaced files and markers aside; then restore the markers."""
        target = HadoopPath(access.bridge, self.path)
        for file, aside in (*self._marker_paths(access), *self._replaced_paths(access)):
            if file.exists() and not aside.exists():
                aside.parent.make()
                move(file, aside)
        for folder in self.extended_folders:
            target.at(folder).make()
        move_files(access, self.staging, self.path, names)
        self._restore_markers(access)
        sync_folders(access, (*self.extended_folders, *map(parent_of, self.extended_folders)))

    def is_committed(self, access: Access) -> bool:
        """Whether the target has every new file, and no replaced file."""
        target = HadoopPath(access.bridge, self.path)
        return all(target.child(name).exists() for name in self.files) and not any(
            target.child(name).exists() for name in self.replaced_files
        )

    def undo(self, access: Access) -> None:
        """Remove the added files and the new folders, and restore the replaced files and the markers."""
        self._remove_files(access)
        for file, aside in self._replaced_paths(access):
            if aside.exists() and not file.exists():
                file.parent.make()
                move(aside, file)
        self._restore_markers(access)
        self._remove_new_folders(access, self.new_folders)
        sync_folders(access, (*self.extended_folders, *map(parent_of, self.extended_folders)))
        self.finish(access)

    def _marker_paths(self, access: Access) -> Iterator[tuple[HadoopPath, HadoopPath]]:
        """Yield the path of each marker to move aside, and its temporary path."""
        names = [f"{name}/{SUCCESS_MARKER}" for name in self.hidden_marker_partitions]
        return _path_pairs(access, self.path, f"{self.staging}/.penstock-markers", names)

    def _replaced_paths(self, access: Access) -> Iterator[tuple[HadoopPath, HadoopPath]]:
        """Yield the path of each replaced file, and its temporary path."""
        return _path_pairs(access, self.path, f"{self.staging}-old", self.replaced_files)

    def _restore_markers(self, access: Access) -> None:
        for marker, aside in self._marker_paths(access):
            if aside.exists() and not marker.exists():
                move(aside, marker)


def _path_pairs(
    access: Access, path: str, aside_path: str, names: Sequence[str]
) -> Iterator[tuple[HadoopPath, HadoopPath]]:
    if names:  # otherwise no calls to the JVM are needed
        folder, aside_folder = HadoopPath(access.bridge, path), HadoopPath(access.bridge, aside_path)
        for name in names:
            yield folder.child(name), aside_folder.child(name)
