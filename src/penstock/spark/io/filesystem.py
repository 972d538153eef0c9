"""Files and folders on any file system that Spark can reach (``org.apache.hadoop.fs.FileSystem``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from penstock.base.local_files import exchange, is_volume, rename, sync, sync_tree, volumes_below, write_atomically
from penstock.base.ownership import CheckedContent, Writer, belongs_to_user, check_owner, read_checked, too_large

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

_STATUS_TEXT = re.compile(
    r"\{path=(.*?); isDirectory=(true|false)(?:; length=(\d+))?.*?; modification_time=(\d+)", re.DOTALL
)
"""The string form of a file status of Hadoop: path, whether it is a folder, bytes, and modification time."""

_MISSING_FILE_ERRORS = {"FileNotFoundException", "NoSuchFileException"}
_RENAME_ATOMICALLY = {"file", "hdfs", "viewfs", "webhdfs", "swebhdfs"}
"""File systems that rename a folder in a single step; other file systems may not."""
_RECORD_OWNERS = {"hdfs", "webhdfs", "swebhdfs"}
"""Distributed file systems that record the owner of a file; object stores report the reader as the owner."""


def is_hidden(name: str) -> bool:
    """Whether Spark's readers skip a file or folder of this name (``HadoopFSUtils.shouldFilterOutPathName``).

    Spark reads partition folders whose names begin with ``_``, but not those that begin with a dot.
    """
    is_metadata = name.startswith("_") and "=" not in name  # such as _SUCCESS
    return is_metadata or name.startswith(".") or name.endswith("._COPYING_")


def is_denied(error: Exception) -> bool:
    """Whether a file system denied access to the user; object stores raise ``AccessDeniedException``."""
    return any(name in str(error) for name in ("AccessControlException", "AccessDeniedException"))


def _java_class_name(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getSimpleName())


class HadoopPath:
    """A path on a file system of Spark: a folder, or a file.

    `path` is relative to the file system's working directory unless it is absolute. `near` is another path of the same
    file system, which saves the lookup of the file system; then `path` must include the scheme.
    """

    def __init__(self, bridge: Bridge, path: str, near: HadoopPath | None = None) -> None:
        self._bridge = bridge
        self._hadoop_path = bridge.find("org.apache.hadoop.fs.Path")(path)
        self._text: str | None = None
        if near is None:
            self._fs: Any = self._hadoop_path.getFileSystem(bridge.session._handle.sessionState().newHadoopConf())
            self._scheme = str(self._fs.getUri().getScheme())
            self._hadoop_path = self._fs.makeQualified(self._hadoop_path)
        else:
            self._fs, self._scheme = near._fs, near._scheme

    def __str__(self) -> str:
        if self._text is None:
            self._text = str(self._hadoop_path.toString())
        return self._text

    def at(self, path: str) -> HadoopPath:
        """Return a path of the same file system; `path` must be absolute with its scheme, as `str` returns it."""
        return HadoopPath(self._bridge, path, self)

    @property
    def name(self) -> str:
        """The last component of the path."""
        return str(self._hadoop_path.getName())

    @property
    def parent(self) -> HadoopPath:
        """The parent folder."""
        return self.at(str(self._hadoop_path.getParent().toString()))

    def child(self, name: str) -> HadoopPath:
        """Return a path below this path."""
        return self.at(f"{self}/{name}")

    def exists(self) -> bool:
        """Whether a file or folder exists at the path."""
        return bool(self._fs.exists(self._hadoop_path))

    def is_folder(self) -> bool:
        """Whether a folder exists at the path."""
        return self.exists() and bool(self._fs.getFileStatus(self._hadoop_path).isDirectory())

    def children(self) -> list[HadoopPath]:
        """Return the files and folders in the folder."""
        return [self.at(str(status.getPath().toString())) for status in self._fs.listStatus(self._hadoop_path)]

    def files_below(self, prefix: str = "", *, dotted_partitions: bool = False) -> Iterator[tuple[str, int]]:
        """Yield the relative path and the size in bytes of each file below the folder.

        Hidden files and folders (`is_hidden`) are skipped. `prefix` is added to the paths. `dotted_partitions` says
        whether to include partition folders with a leading dot, which Spark writes but does not read.
        """
        for name, is_folder, size in self.entries():
            if is_hidden(name) and not (dotted_partitions and is_folder and "=" in name):
                continue
            path = f"{prefix}{name}"
            if is_folder:
                yield from self.child(name).files_below(f"{path}/", dotted_partitions=dotted_partitions)
            else:
                yield path, size

    def touch(self) -> None:
        """Create an empty file; an existing file is unchanged."""
        if not self.exists():
            self._fs.create(self._hadoop_path, True).close()

    def read(self) -> bytes:
        """Return the content of a file."""
        with closing(self._fs.open(self._hadoop_path)) as stream:
            return bytes(self._bridge.find("org.apache.commons.io.IOUtils").toByteArray(stream))

    def read_if_exists(self) -> bytes | None:
        """Return the content of a file, None if it does not exist; another process may remove it at any time."""
        try:
            return self.read()
        except Py4JJavaError as error:
            if _java_class_name(error) not in _MISSING_FILE_ERRORS:
                raise
            return None

    def read_checked(self, limit: int) -> CheckedContent | None:
        """Return a file's content (empty above `limit` bytes) and who may have written it; None if it is missing."""
        path = self.local_path
        if path is not None:
            return read_checked(path, limit)
        try:
            return _read_checked(self, limit)
        except Py4JJavaError as error:
            if _java_class_name(error) in _MISSING_FILE_ERRORS:
                return None
            if is_denied(error):
                return CheckedContent(b"", Writer.OTHER, "this user may not read it")
            raise

    @property
    def is_removable(self) -> bool:
        """Whether a file or folder belongs to the user and is not a symbolic link; True if no owners are recorded."""
        path = self.local_path
        if path is not None:
            return belongs_to_user(path)
        if self._scheme not in _RECORD_OWNERS:
            return True
        try:
            status = self._fs.getFileLinkStatus(self._hadoop_path)
        except Py4JJavaError as error:
            if _java_class_name(error) in _MISSING_FILE_ERRORS:
                return False
            raise
        return not status.isSymlink() and str(status.getOwner()) == _user(self._bridge)

    def write(self, content: bytes, *, overwrite: bool = False, private: bool = False) -> bool:
        """Create a file atomically; return False if it exists and may not be overwritten.

        The file survives a power failure. It is written by Spark's ``CheckpointFileManager.createAtomic``; local files,
        which Spark does not sync, are written by Python if hard links work. `private` local files have mode 0600.
        """
        path = self.local_path
        if path is not None:
            with suppress(NotImplementedError):
                return write_atomically(path, content, overwrite=overwrite, private=private)
        return _create_atomically(self, content, overwrite=overwrite)

    def copy_to(self, target: HadoopPath) -> None:
        """Copy a file, or a folder with its content, to a path that does not exist."""
        conf = self._bridge.session._handle.sessionState().newHadoopConf()
        util = self._bridge.find("org.apache.hadoop.fs.FileUtil")
        util.copy(self._fs, self._hadoop_path, target._fs, target._hadoop_path, False, conf)

    def entries(self) -> list[tuple[str, bool, int]]:
        """Return the name, whether it is a folder, and the bytes of each entry, including hidden entries."""
        return [(name, is_folder, size) for name, is_folder, size, _ in self.statuses()]

    def statuses(self) -> list[tuple[str, bool, int, float]]:
        """Return the name, whether it is a folder, the bytes and the modification time (seconds) of each entry."""
        array = self._fs.listStatus(self._hadoop_path)
        wrapped = self._bridge.find("scala.collection.immutable.ArraySeq").unsafeWrapArray(array)
        entries = _STATUS_TEXT.findall(str(wrapped.mkString(" ")))
        # The string form of a mounted file system's status (ViewFs) has no path.
        if len(entries) != len(array) or any(path == "null" for path, *_ in entries):
            entries = [(s.getPath().toString(), s.isDirectory(), s.getLen(), s.getModificationTime()) for s in array]
        return [
            (path.rpartition("/")[2], is_folder in {"true", True}, int(size or 0), int(modified) / 1000)
            for path, is_folder, size, modified in entries
        ]

    def nearest_existing(self) -> HadoopPath:
        """Return the folder itself, or its nearest ancestor that exists."""
        folder = self
        while not folder.exists() and folder._hadoop_path.getParent() is not None:
            folder = folder.parent
        return folder

    def may_write(self) -> bool:
        """Whether the user's permissions allow writing to the folder, as far as the file system reports them."""
        write = self._bridge.find("org.apache.hadoop.fs.permission.FsAction").WRITE
        try:
            self._fs.access(self._hadoop_path, write)
        except Exception as error:
            if is_denied(error):
                return False
            raise
        return True

    def children_matching(self, pattern: str) -> list[HadoopPath]:
        """Return the entries of the folder whose names match a glob pattern; empty if the folder does not exist."""
        name_filter = self._bridge.find("org.apache.hadoop.fs.GlobFilter")(pattern)
        matches = self._fs.listStatus(self._hadoop_path, name_filter) if self.is_folder() else ()
        return [self.at(str(status.getPath().toString())) for status in matches]

    def modification_time(self) -> float:
        """Return the modification time, in seconds since the epoch."""
        return float(self._fs.getFileStatus(self._hadoop_path).getModificationTime()) / 1000

    @property
    def local_path(self) -> str | None:
        """The path for Python's file functions; None if it is not on the local file system."""
        if self._scheme != "file":
            return None
        text = str(self)
        return str(self._hadoop_path.toUri().getPath()) if text.startswith("file://") else text.removeprefix("file:")

    def exchange(self, other: HadoopPath) -> bool:
        """Swap two folders in a single step; return False if that is impossible."""
        path, target_path = self.local_path, other.local_path
        return path is not None and target_path is not None and exchange(path, target_path)

    @property
    def renames_atomically(self) -> bool:
        """Whether a folder is renamed in a single step; object stores copy file by file."""
        return self._scheme in _RENAME_ATOMICALLY

    def sync_entries(self) -> None:
        """Sync the list of a local folder's entries, to survive a power failure; do nothing on other file systems."""
        path = self.local_path
        if path is not None and self.is_folder():
            sync(path)

    def sync(self) -> None:
        """Sync everything in a local folder, to survive a power failure; do nothing on other file systems."""
        path = self.local_path
        if path is not None and self.is_folder():
            sync_tree(path)

    @property
    def resolved(self) -> HadoopPath:
        """The folder with local symbolic links resolved, so that all writers use the same path."""
        path = self.local_path
        return self if path is None else HadoopPath(self._bridge, f"file:{os.path.realpath(path)}")

    @property
    def is_volume(self) -> bool:
        """Whether the folder is the mount point of a local volume; renames across volumes are impossible."""
        path = self.local_path
        return path is not None and is_volume(path)

    def volumes_below(self) -> list[str]:
        """Return the mount points of local volumes below the folder."""
        path = self.local_path
        return [] if path is None else volumes_below(path)

    def free_bytes(self) -> int:
        """Return the free bytes of the file system."""
        return int(self._fs.getStatus(self._hadoop_path).getRemaining())

    def make(self) -> None:
        """Create the folder and its missing ancestors."""
        self._fs.mkdirs(self._hadoop_path)

    def move_to(self, target: HadoopPath) -> bool:
        """Rename to a path that does not exist; return whether the rename succeeded. Local files are never copied.

        Raises `OSError` if the local file system rejects the rename.
        """
        path, target_path = self.local_path, target.local_path
        if path is not None and target_path is not None:
            return rename(path, target_path)
        return bool(self._fs.rename(self._hadoop_path, target._hadoop_path))

    def is_empty(self) -> bool:
        """Whether the path is an empty folder."""
        return self.is_folder() and not self.entries()

    def remove_if_empty(self) -> None:
        """Delete a folder if it is empty."""
        if self.exists() and not self.entries():
            with suppress(Py4JJavaError):  # another process has created a file meanwhile
                self._fs.delete(self._hadoop_path, False)

    def delete(self) -> None:
        """Delete a file, or a folder with its content; the path need not exist.

        Raises `OSError` if it still exists: some file systems do not raise an error.
        """
        if not self._fs.delete(self._hadoop_path, True) and self.exists():
            raise OSError(f"{self} cannot be deleted")


def _read_checked(file: HadoopPath, limit: int) -> CheckedContent:
    if file._scheme == "viewfs":  # a mounted file system of any kind, possibly without owners
        target = HadoopPath(file._bridge, str(file._fs.resolvePath(file._hadoop_path).toString()))
        return target.read_checked(limit) or CheckedContent(b"", Writer.OTHER, "it has just been removed")
    before = file._fs.getFileStatus(file._hadoop_path)
    if before.isDirectory():
        return CheckedContent(b"", Writer.OTHER, "it is not a regular file")
    if before.getLen() > limit:
        return too_large(before.getLen(), limit)
    content = file.read()
    if file._scheme not in _RECORD_OWNERS:
        return CheckedContent(content, Writer.UNKNOWN, "its file system does not record who wrote it")
    # Hadoop reports the owner of a path, not of an open file. So a file that was replaced meanwhile is rejected.
    after = file._fs.getFileStatus(file._hadoop_path)
    if (before.getModificationTime(), before.getLen()) != (after.getModificationTime(), after.getLen()):
        return CheckedContent(b"", Writer.OTHER, "it changed while it was read")
    return check_owner(content, str(after.getOwner()), _user(file._bridge), int(after.getPermission().toShort()))


def _user(bridge: Bridge) -> str:
    return str(bridge.find("org.apache.hadoop.security.UserGroupInformation").getCurrentUser().getShortUserName())


def _create_atomically(file: HadoopPath, content: bytes, *, overwrite: bool) -> bool:
    bridge = file._bridge
    package = "org.apache.spark.sql.execution.streaming."
    package += "checkpointing." if bridge.version >= (4, 1) else ""
    manager = bridge.companion(package + "CheckpointFileManager")
    conf = bridge.session._handle.sessionState().newHadoopConf()
    files = manager.create(file._hadoop_path.getParent(), conf)
    if not overwrite and file.exists():
        return False
    stream = files.createAtomic(file._hadoop_path, overwrite)
    try:
        stream.write(bytearray(content))
        if stream.hasCapability("hsync"):
            stream.hsync()
        stream.close()
    except BaseException as error:
        stream.cancel()
        if "FileAlreadyExists" in str(error):
            return False
        raise
    if overwrite and file.read_if_exists() != content:
        # `createAtomic` renames a temporary file, and ignores a failed rename. Object stores without a `FileContext`
        # cannot overwrite by a rename, but a new object becomes visible only as a whole, when it is closed.
        stream = file._fs.create(file._hadoop_path, True)
        stream.write(bytearray(content))
        stream.close()
    return True
