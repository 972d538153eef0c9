"""Files and folders on whatever file system Spark can reach (``org.apache.hadoop.fs.FileSystem``)."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from penstock.spark.durable import sync, sync_below, write_whole
from penstock.spark.ownership import CheckedContent, Writer, is_own_entry, judged, read_checked, too_large
from penstock.spark.rename import exchange, is_volume, rename, volumes_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.jvm import Bridge

_STATUS = re.compile(
    r"\{path=(.*?); isDirectory=(true|false)(?:; length=(\d+))?.*?; modification_time=(\d+)", re.DOTALL
)

_GONE = {"FileNotFoundException", "NoSuchFileException"}
_WHOLE = {"file", "hdfs", "viewfs", "webhdfs", "swebhdfs"}
"""File systems that rename a folder in one step; of others that is not known."""
_WITH_OWNERS = {"hdfs", "webhdfs", "swebhdfs"}
"""File systems of several machines that record who made a file; object stores report the reader as the owner."""


def is_hidden(name: str) -> bool:
    """Whether Spark's readers pass over a file or folder of this name (``HadoopFSUtils.shouldFilterOutPathName``).

    A partition folder may begin with ``_``, as its column does, but not with a dot.
    """
    return is_marker(name) or name.startswith(".") or name.endswith("._COPYING_")


def is_marker(name: str) -> bool:
    """Whether a name is one that Spark gives to what describes a write, such as ``_SUCCESS``."""
    return name.startswith("_") and "=" not in name


def is_denied(error: Exception) -> bool:
    """Whether a file system refused what the user may not do; object stores tell so by the second name."""
    return any(name in str(error) for name in ("AccessControlException", "AccessDeniedException"))


class Folder:
    """A path that Spark can write to.

    Parameters
    ----------
    bridge
        The session.
    path
        The path; a relative one is below the file system's working directory.
    near
        A path of the same file system, which need not be looked for then: `path` is a whole one.
    """

    def __init__(self, bridge: Bridge, path: str, near: Folder | None = None) -> None:
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

    def at(self, path: str) -> Folder:
        """Return another path of the same file system, given as `str` gives it."""
        return Folder(self._bridge, path, self)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return str(self._hadoop_path.getName())

    @property
    def parent(self) -> Folder:
        """The folder above."""
        return self.at(str(self._hadoop_path.getParent().toString()))

    def child(self, name: str) -> Folder:
        """Return a path below this one."""
        return self.at(f"{self}/{name}")

    def exists(self) -> bool:
        """Whether there is anything at the path."""
        return bool(self._fs.exists(self._hadoop_path))

    def is_folder(self) -> bool:
        """Whether there is a folder at the path."""
        return self.exists() and bool(self._fs.getFileStatus(self._hadoop_path).isDirectory())

    def children(self) -> list[Folder]:
        """Return what lies in the folder."""
        found = self._fs.listStatus(self._hadoop_path)
        return [self.at(str(status.getPath().toString())) for status in found]

    def files_below(self, under: str = "", *, unread: bool = False) -> Iterator[tuple[str, int]]:
        """Iterate over the files below the folder, as paths relative to it and bytes; two calls for each folder.

        What `is_hidden` is left out.

        Parameters
        ----------
        under
            What to put in front of the paths.
        unread
            Whether partition folders count that Spark writes but does not read: a dot is in front of their names.
        """
        for name, is_folder, size in self.entries():
            if is_hidden(name) and not (unread and is_folder and "=" in name):
                continue
            place = f"{under}{name}"
            if is_folder:
                yield from self.child(name).files_below(f"{place}/", unread=unread)
            else:
                yield place, size

    def touch(self) -> None:
        """Make an empty file; one that is there stays."""
        if not self.exists():
            self._fs.create(self._hadoop_path, True).close()

    def read(self) -> bytes:
        """Return what a file holds."""
        stream = self._fs.open(self._hadoop_path)
        try:
            return bytes(self._bridge.find("org.apache.commons.io.IOUtils").toByteArray(stream))
        finally:
            stream.close()

    def read_range(self, start: int, length: int) -> bytes:
        """Return a part of a file; it is shorter than `length` bytes, or empty, if the file ends before.

        Only these bytes are fetched, and what the file system reads ahead.
        """
        stream = self._fs.open(self._hadoop_path)
        try:
            stream.seek(start)
            return bytes(stream.readNBytes(length))
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "EOFException":
                raise
            return b""  # the start is behind the end: another process has replaced the file
        finally:
            stream.close()

    def read_if_there(self) -> bytes | None:
        """Return what a file holds, None if it is not there: somebody may remove it at any time."""
        try:
            return self.read()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() not in _GONE:
                raise
            return None

    def read_checked(self, limit: int) -> CheckedContent | None:
        """Return what a file holds, and who may have written it; None if it is not there.

        Parameters
        ----------
        limit
            The largest size to read, in bytes.
        """
        path = self.local_path
        if path is not None:
            return read_checked(path, limit)
        try:
            return self._read_checked(limit)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _GONE:
                return None
            if is_denied(error):
                return CheckedContent(b"", Writer.OTHER, "this user may not read it")
            raise

    def _read_checked(self, limit: int) -> CheckedContent:
        if self._scheme == "viewfs":  # a mount of any file system, also of one that records no owners
            target = self._fs.resolvePath(self._hadoop_path)
            return Folder(self._bridge, str(target.toString())).read_checked(limit) or CheckedContent(
                b"", Writer.OTHER, "it has just been removed"
            )
        before = self._fs.getFileStatus(self._hadoop_path)
        if before.isDirectory():
            return CheckedContent(b"", Writer.OTHER, "it is not a regular file")
        if before.getLen() > limit:
            return too_large(before.getLen(), limit)
        content = self.read()
        if self._scheme not in _WITH_OWNERS:
            return CheckedContent(content, Writer.UNKNOWN, "its file system does not record who wrote it")
        # Hadoop reports the owner of a path, not of an opened file: a file that was exchanged meanwhile is not read.
        after = self._fs.getFileStatus(self._hadoop_path)
        if (before.getModificationTime(), before.getLen()) != (after.getModificationTime(), after.getLen()):
            return CheckedContent(b"", Writer.OTHER, "it changed while it was read")
        return judged(content, str(after.getOwner()), self._user(), int(after.getPermission().toShort()))

    def _user(self) -> str:
        user = self._bridge.find("org.apache.hadoop.security.UserGroupInformation").getCurrentUser()
        return str(user.getShortUserName())

    @property
    def may_be_removed(self) -> bool:
        """Whether a file or folder is the user's own, and not a symbolic link; True where no owners are recorded."""
        path = self.local_path
        if path is not None:
            return is_own_entry(path)
        if self._scheme not in _WITH_OWNERS:
            return True
        try:
            status = self._fs.getFileLinkStatus(self._hadoop_path)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _GONE:
                return False
            raise
        return not status.isSymlink() and str(status.getOwner()) == self._user()

    def write(self, content: bytes, *, overwrite: bool = False, private: bool = False) -> bool:
        """Make a file with all of its content or not at all, as Spark makes its logs.

        It survives a loss of power. Uses ``CheckpointFileManager.createAtomic`` but for files of this machine, where
        that syncs nothing; returns False where there is such a file that may not be replaced. A private file of this
        machine has the mode 0600.
        """
        path = self.local_path
        if path is not None:
            with suppress(NotImplementedError):
                return write_whole(path, content, overwrite=overwrite, private=private)
        package = "org.apache.spark.sql.execution.streaming."
        package += "checkpointing." if self._bridge.version >= (4, 1) else ""
        manager = self._bridge.companion(package + "CheckpointFileManager")
        conf = self._bridge.session._handle.sessionState().newHadoopConf()
        files = manager.create(self._hadoop_path.getParent(), conf)
        if not overwrite and self.exists():
            return False
        stream = files.createAtomic(self._hadoop_path, overwrite)
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
        if overwrite and self.read_if_there() != content:
            # Spark renames another file onto this one, and does not tell where the file system refuses to. Those are
            # object stores without a `FileContext`: an object that is written is in place, whole, when it is closed.
            replaced = self._fs.create(self._hadoop_path, True)
            replaced.write(bytearray(content))
            replaced.close()
        return True

    def copy_to(self, target: Folder) -> None:
        """Copy a file or a folder with all it holds, onto a path that does not exist."""
        conf = self._bridge.session._handle.sessionState().newHadoopConf()
        util = self._bridge.find("org.apache.hadoop.fs.FileUtil")
        util.copy(self._fs, self._hadoop_path, target._fs, target._hadoop_path, False, conf)

    def entries(self) -> list[tuple[str, bool, int]]:
        """Return name, whether it is a folder, and bytes of everything in the folder, hidden ones too."""
        return [(name, is_folder, size) for name, is_folder, size, _ in self.statuses()]

    def statuses(self) -> list[tuple[str, bool, int, float]]:
        """Return name, whether it is a folder, bytes and time of change of everything in the folder, in one call."""
        array = self._fs.listStatus(self._hadoop_path)
        wrapped = self._bridge.find("scala.collection.immutable.ArraySeq").unsafeWrapArray(array)
        found = _STATUS.findall(str(wrapped.mkString(" ")))
        if len(found) != len(array) or any(path == "null" for path, *_ in found):  # as of mounted file systems (ViewFs)
            found = [
                (one.getPath().toString(), str(one.isDirectory()).lower(), one.getLen(), one.getModificationTime())
                for one in array
            ]
        return [
            (path.rpartition("/")[2], folder == "true", int(size or 0), int(modified or 0) / 1000)
            for path, folder, size, modified in found
        ]

    def open_to_write(self) -> HadoopLog:
        """Begin a file, and return what writes lines into it."""
        return HadoopLog(self._fs.create(self._hadoop_path, False))

    def nearest(self) -> Folder:
        """Return the folder itself, or the first above it that is there."""
        found = self
        while not found.exists() and found._hadoop_path.getParent() is not None:
            found = found.parent
        return found

    def may_write(self) -> bool:
        """Whether the user's permissions allow to write to the folder, as far as the file system tells."""
        write = self._bridge.find("org.apache.hadoop.fs.permission.FsAction").WRITE
        try:
            self._fs.access(self._hadoop_path, write)
        except Exception as error:
            if is_denied(error):
                return False
            raise
        return True

    def matching(self, pattern: str) -> list[Folder]:
        """Return what lies in the folder by a name that fits a pattern; nothing where there is no folder."""
        if not self.is_folder():
            return []
        wanted = self._bridge.find("org.apache.hadoop.fs.GlobFilter")(pattern)
        found = self._fs.listStatus(self._hadoop_path, wanted)
        return [self.at(str(status.getPath().toString())) for status in found]

    def modified(self) -> float:
        """Return when it was changed, in seconds since the epoch."""
        return float(self._fs.getFileStatus(self._hadoop_path).getModificationTime()) / 1000

    @property
    def local_path(self) -> str | None:
        """The path on this machine's own file system, None of any other."""
        if self._scheme != "file":
            return None
        text = str(self)
        return str(self._hadoop_path.toUri().getPath()) if text.startswith("file://") else text.removeprefix("file:")

    def exchange(self, other: Folder) -> bool:
        """Let two folders change places in one step; return False where that cannot be."""
        mine, others = self.local_path, other.local_path
        return mine is not None and others is not None and exchange(mine, others)

    @property
    def renames_whole(self) -> bool:
        """Whether a folder is renamed in one step; object stores copy file by file."""
        return self._scheme in _WHOLE

    def sync_entries(self) -> None:
        """Let the names in the folder survive a loss of power; file systems of several machines see to that."""
        path = self.local_path
        if path is not None and self.is_folder():
            sync(path)

    def sync(self) -> None:
        """Let all that lies in the folder survive a loss of power."""
        path = self.local_path
        if path is not None and self.is_folder():
            sync_below(path)

    @property
    def resolved(self) -> Folder:
        """The folder itself, where the path has symbolic links of this machine: all who write to it name it so."""
        path = self.local_path
        return self if path is None else Folder(self._bridge, f"file:{os.path.realpath(path)}")

    @property
    def is_volume(self) -> bool:
        """Whether it is a volume of this machine of its own, which nothing can be renamed into or out of."""
        path = self.local_path
        return path is not None and is_volume(path)

    def volumes_below(self) -> list[str]:
        """Return where volumes of this machine are mounted below it."""
        path = self.local_path
        return [] if path is None else volumes_below(path)

    def free_bytes(self) -> int:
        """Return the bytes that the file system has left."""
        return int(self._fs.getStatus(self._hadoop_path).getRemaining())

    def size(self) -> int:
        """Return the bytes of a file."""
        return int(self._fs.getFileStatus(self._hadoop_path).getLen())

    def make(self) -> None:
        """Make the folder, with those above it."""
        self._fs.mkdirs(self._hadoop_path)

    def move_to(self, target: Folder) -> bool:
        """Rename onto a path that is free; return whether that succeeded. On this machine nothing is ever copied.

        Raises
        ------
        OSError
            If this machine's file system refuses.
        """
        path, others = self.local_path, target.local_path
        if path is not None and others is not None:
            return rename(path, others)
        return bool(self._fs.rename(self._hadoop_path, target._hadoop_path))

    def is_empty(self) -> bool:
        """Whether it is a folder with nothing in it."""
        return self.is_folder() and not self.entries()

    def remove_if_empty(self) -> None:
        """Delete a folder with nothing in it; any other stays."""
        if self.exists() and not self.entries():
            with suppress(Py4JJavaError):  # somebody has put something there meanwhile
                self._fs.delete(self._hadoop_path, False)

    def delete(self) -> None:
        """Delete it with all it holds; a path with nothing there is fine.

        Raises
        ------
        OSError
            If it is still there: some file systems only return that.
        """
        if not self._fs.delete(self._hadoop_path, True) and self.exists():
            raise OSError(f"{self} cannot be deleted")


class HadoopLogs:
    """A folder of logs on a file system of Hadoop.

    Parameters
    ----------
    folder
        The folder; made where it is not there.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def entries(self) -> list[tuple[str, int, float]]:
        """Return name, bytes and time of change of each file."""
        if not self._folder.exists():
            return []
        return [(name, size, modified) for name, is_folder, size, modified in self._folder.statuses() if not is_folder]

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        return self._folder.child(name).read_range(start, length)

    def create(self, name: str) -> HadoopLog:
        """Begin a file."""
        self._folder.make()
        return self._folder.child(name).open_to_write()

    def remove(self, name: str) -> None:
        """Remove a file; it may be gone already."""
        self._folder.child(name).delete()


class HadoopLog:
    """A log on a file system of Hadoop; on object stores its lines can be read once it is closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def append(self, text: str) -> None:
        """Add text, and hand it to the file system's servers."""
        self._stream.write(bytearray(text.encode()))
        self._stream.hflush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
