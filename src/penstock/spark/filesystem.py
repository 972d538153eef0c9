"""Files and folders on whatever file system Spark can reach (``org.apache.hadoop.fs.FileSystem``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.jvm import Bridge

_STATUS = re.compile(r"\{path=(.*?); isDirectory=(true|false)(?:; length=(\d+))?")


class Folder:
    """A path that Spark can write to."""

    def __init__(self, bridge: Bridge, path: str) -> None:
        self._bridge = bridge
        self._hadoop_path = bridge.find("org.apache.hadoop.fs.Path")(path)
        self._fs: Any = self._hadoop_path.getFileSystem(bridge.session.sessionState().newHadoopConf())
        self._hadoop_path = self._fs.makeQualified(self._hadoop_path)

    def __str__(self) -> str:
        return str(self._hadoop_path.toString())

    @property
    def name(self) -> str:
        """The last part of the path."""
        return str(self._hadoop_path.getName())

    @property
    def parent(self) -> Folder:
        """The folder above."""
        return Folder(self._bridge, str(self._hadoop_path.getParent().toString()))

    def child(self, name: str) -> Folder:
        """Return a path below this one."""
        return Folder(self._bridge, f"{self}/{name}")

    def exists(self) -> bool:
        """Whether there is anything at the path."""
        return bool(self._fs.exists(self._hadoop_path))

    def is_folder(self) -> bool:
        """Whether there is a folder at the path."""
        return self.exists() and bool(self._fs.getFileStatus(self._hadoop_path).isDirectory())

    def children(self) -> list[Folder]:
        """Return what lies in the folder."""
        found = self._fs.listStatus(self._hadoop_path)
        return [Folder(self._bridge, str(status.getPath().toString())) for status in found]

    def files_below(self, under: str = "") -> Iterator[tuple[str, int]]:
        """Iterate over the files below the folder, as paths relative to it and bytes; two calls for each folder.

        What is hidden (``_`` or ``.`` in front of a name) is left out.
        """
        array = self._fs.listStatus(self._hadoop_path)
        wrapped = self._bridge.find("scala.collection.immutable.ArraySeq").unsafeWrapArray(array)
        listed = str(wrapped.mkString(" "))
        for path, is_folder, size in _STATUS.findall(listed):
            name = path.rpartition("/")[2]
            if name.startswith(("_", ".")):
                continue
            place = f"{under}{name}"
            if is_folder == "true":
                yield from self.child(name).files_below(f"{place}/")
            else:
                yield place, int(size)

    def touch(self) -> None:
        """Make an empty file; one that is there stays."""
        if not self.exists():
            self._fs.create(self._hadoop_path, True).close()

    def size(self) -> int:
        """Return the bytes of a file."""
        return int(self._fs.getFileStatus(self._hadoop_path).getLen())

    def make(self) -> None:
        """Make the folder, with those above it."""
        self._fs.mkdirs(self._hadoop_path)

    def move_to(self, target: Folder) -> bool:
        """Rename; return whether that succeeded."""
        return bool(self._fs.rename(self._hadoop_path, target._hadoop_path))

    def delete(self) -> None:
        """Delete it with all it holds; a path with nothing there is fine."""
        self._fs.delete(self._hadoop_path, True)
