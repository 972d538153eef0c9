"""Moves of files and folders that can be repeated and undone."""

from __future__ import annotations

import errno
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit.file_tokens import is_token_file, is_written_by
from penstock.commit.prepared import Prepared
from penstock.errors import SinkError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from penstock.commit.prepared import Access

SUCCESS_MARKER = "_SUCCESS"
_CROSS_DEVICE_HINT = (
    "files cannot be renamed across volumes, nor can folders that are part of a container's image be renamed: "
    "write to a folder that Spark has created on the volume"
)


@dataclass(frozen=True)
class PreparedMoves(Prepared):
    """Commit record of files or folders that a commit moves from the folder `staging` into the folder `path`."""

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
    def hidden_folders(self) -> tuple[str, ...]:
        """The staging folder, and the folder to which replaced rows are moved."""
        return self.staging, f"{self.staging}-old"

    @property
    @abstractmethod
    def _moved_names(self) -> tuple[str, ...]:
        """The paths of the files to move, relative to staging and target folder, in the order of their moves."""

    @abstractmethod
    def _move(self, access: Access, names: tuple[str, ...]) -> None:
        """Move the files `names` of the record, and all folders of the record, into the target."""

    def commit(self, access: Access) -> None:
        """Move all files and folders into the target; skip those that an earlier attempt has moved."""
        self._move(access, self._moved_names)

    def complete(self, access: Access) -> None:
        """Like `commit`, but accept that files moved by an earlier attempt were removed from the target since."""
        staging = HadoopPath(access.bridge, self.staging)
        self._move(access, tuple(name for name in self._moved_names if staging.child(name).exists()))

    def finish(self, access: Access) -> None:
        """Remove the staging folder and the replaced rows."""
        for folder in self.hidden_folders:
            HadoopPath(access.bridge, folder).delete()

    def _remove_files(self, access: Access) -> None:
        """Remove the moved files, except a ``_SUCCESS`` or token file (the id of a write) of another run."""
        staging, target = HadoopPath(access.bridge, self.staging), HadoopPath(access.bridge, self.path)
        for name in reversed(self._moved_names):
            file = target.child(name)
            if name == SUCCESS_MARKER:
                was_moved = staging.exists() and not staging.child(name).exists()
            else:
                was_moved = not is_token_file(name) or (file.exists() and is_written_by(file, self.staging))
            if was_moved:
                file.delete()

    def _remove_new_folders(self, access: Access, new_folders: tuple[str, ...]) -> None:
        """Remove the new folders without files but ``_SUCCESS``: the deepest first, the target (named "") last."""
        target = HadoopPath(access.bridge, self.path)
        for name in sorted(new_folders, key=lambda relative: (bool(relative), relative.count("/")), reverse=True):
            folder = target.child(name) if name else target
            if folder.exists() and [entry for entry, _, _ in folder.entries()] == [SUCCESS_MARKER]:
                folder.child(SUCCESS_MARKER).delete()
            folder.remove_if_empty()


def move(source: HadoopPath, target: HadoopPath) -> None:
    """Rename a file or folder; raise `SinkError` if the target exists, or the file system refuses."""
    cause: OSError | None = None
    try:
        if not target.exists() and source.move_to(target):
            return
    except OSError as error:
        cause = error
    reason = "the file system refused, or the target exists" if cause is None else str(cause)
    hint = _CROSS_DEVICE_HINT if cause is not None and cause.errno == errno.EXDEV else None
    raise SinkError(f"cannot move {source} to {target}", cause=reason, hint=hint) from cause


def move_files(access: Access, staging: str, path: str, names: Iterable[str]) -> None:
    """Move files from `staging` to `path`; skip files that were moved before, and ``_SUCCESS`` if the target has it."""
    staging_folder, target_folder = HadoopPath(access.bridge, staging), HadoopPath(access.bridge, path)
    for name in names:
        source, target = staging_folder.child(name), target_folder.child(name)
        if target.exists() and (name == SUCCESS_MARKER or not source.exists()):
            continue
        try:
            move(source, target)
        except SinkError:
            if name != SUCCESS_MARKER or not target.exists():  # another job may have just written ``_SUCCESS``
                raise


def sync_folders(access: Access, paths: Iterable[str]) -> None:
    """Sync the entries of folders to disk, so that moves into and out of the folders survive a loss of power."""
    folder: HadoopPath | None = None  # `at` reuses the file system of the previous folder
    for path in sorted(set(paths)):
        folder = HadoopPath(access.bridge, path) if folder is None else folder.at(path)
        folder.sync_entries()


def parent_of(path: str) -> str:
    """Return the parent folder of a path."""
    return path.rpartition("/")[0]
