"""Folders of event logs on any file system that Spark can reach."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from penstock.spark.io.filesystem import HadoopPath


class HadoopLogs:
    """A folder of logs on a Hadoop file system; `create` also creates the folder."""

    def __init__(self, folder: HadoopPath) -> None:
        self._folder = folder

    def entries(self) -> list[tuple[str, int, float]]:
        """Return name, bytes and modification time (seconds since the epoch) of each file."""
        statuses = self._folder.statuses() if self._folder.exists() else []
        return [(name, size, modified) for name, is_folder, size, modified in statuses if not is_folder]

    def read(self, name: str, start: int, length: int) -> bytes:
        """Return a range of a file; shorter than `length` bytes, or empty, if the file ends earlier."""
        file = self._folder.child(name)
        with closing(file._fs.open(file._hadoop_path)) as stream:
            try:
                stream.seek(start)
                return bytes(stream.readNBytes(length))
            except Py4JJavaError as error:
                if error.java_exception.getClass().getSimpleName() != "EOFException":
                    raise
                return b""  # the start is beyond the end, as another process has replaced the file

    def create(self, name: str) -> HadoopLog:
        """Create a file, and return the log that writes lines to it."""
        self._folder.make()
        file = self._folder.child(name)
        return HadoopLog(file._fs.create(file._hadoop_path, False))

    def remove(self, name: str) -> None:
        """Remove a file, which may be missing already."""
        self._folder.child(name).delete()


class HadoopLog:
    """A log on a Hadoop file system; on object stores its lines become readable when it is closed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def append(self, text: str) -> None:
        """Append text, and flush it to the file system's servers."""
        self._stream.write(bytearray(text.encode()))
        self._stream.hflush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
