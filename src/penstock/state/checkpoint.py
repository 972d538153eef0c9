"""The files of a streaming query's checkpoint."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.spark.io.filesystem import HadoopPath
from penstock.state.log_entries import CommitEntry, OffsetEntry, OperatorEntry, parse_snapshot_metadata

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

DEFAULT_STORE = "default"  # its files are in the folder of the key group, those of other stores in subfolders
REQUIRED_ENTRIES = ("metadata", "offsets", "commits")
"""The entries that the checkpoint of every started query has."""
_ROCKSDB_SNAPSHOT = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.zip")
_CHANGES = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(?:changelog|delta)")
_MEMORY_SNAPSHOT = re.compile(r"(\d+)\.snapshot")


@dataclass(frozen=True, slots=True)
class GroupSize:
    """Rows and bytes of a key group of a store, from the files of the group."""

    operator: int
    store: str
    group: int
    rows: int | None
    """The rows in the newest snapshot; None if there is no snapshot, or it has no row count, or later changes exist."""
    size: int
    """The bytes that Spark reads to load the newest version."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator of the query."""

    metadata: OperatorEntry
    path: str
    """The path of the metadata file, relative to the checkpoint."""

    @property
    def number(self) -> int:
        """The operator's number in the checkpoint."""
        return self.metadata.operator


class Checkpoint:
    """The logs and the state of a streaming query; raises `StateError` if there is no checkpoint at `location`."""

    def __init__(self, bridge: Bridge, location: str) -> None:
        self.folder = HadoopPath(bridge, location.rstrip("/") or location)
        if not self.folder.exists():
            raise StateError.no_checkpoint(location, "such folder")
        for name in REQUIRED_ENTRIES:
            if not self.folder.child(name).exists():
                raise StateError.no_checkpoint(location, f"{name!r} in it")

    @property
    def location(self) -> str:
        """The absolute path."""
        return str(self.folder)

    @cached_property
    def query_id(self) -> str:
        """The query's id; ``?`` if the checkpoint has no id."""
        return str(json.loads(self.folder.child("metadata").read()).get("id", "?"))

    def latest_batch(self, log: str) -> int | None:
        """Return the newest batch in `log` (``offsets`` or ``commits``) without caching; None if the log is empty."""
        names = (name for name, is_folder, _ in self.folder.child(log).entries() if not is_folder)
        return max((int(name) for name in names if name.isdigit()), default=None)

    @cached_property
    def finished_batch(self) -> int | None:
        """The newest batch that had finished when this property was first read; None if there was none."""
        return self.latest_batch("commits")

    def offset_entry(self, batch: int) -> OffsetEntry:
        """Return the entry that Spark logged before a batch."""
        return OffsetEntry.parse(*self._read_text(f"offsets/{batch}"))

    def commit_entry(self, batch: int) -> CommitEntry:
        """Return the entry that Spark logged after a batch."""
        return CommitEntry.parse(*self._read_text(f"commits/{batch}"))

    def _read_text(self, path: str) -> tuple[str, str]:
        file = self.folder.child(path)
        if not file.exists():
            raise StateError.unreadable(self.location, f"there is no {path}")
        return file.read().decode(), str(file)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The stateful operators, in the order of their numbers."""
        state = self.folder.child("state")
        if not state.exists():
            return ()
        numbers = sorted(int(name) for name, is_folder, _ in state.entries() if is_folder and name.isdigit())
        return tuple(self._read_operator(number) for number in numbers)

    def _read_operator(self, number: int) -> Operator:
        path = f"state/{number}/_metadata"
        versioned = self.folder.child(f"{path}/v2")  # a file for each batch that changed the metadata
        if versioned.exists():
            batches = [int(name) for name, _, _ in versioned.entries() if name.isdigit()]
            newest = max(batch for batch in batches if self.finished_batch is None or batch <= self.finished_batch)
            path = f"{path}/v2/{newest}"
        else:
            path = f"{path}/metadata"
        return Operator(OperatorEntry.parse(*self._read_text(path)), path)

    @staticmethod
    def group_path(operator: int, group: int, store: str) -> str:
        """Return the folder of a key group of a store, relative to the checkpoint."""
        path = f"state/{operator}/{group}"
        return path if store == DEFAULT_STORE else f"{path}/{store}"

    def key_groups(self, operator: int) -> list[int]:
        """Return the key groups that an operator has folders for."""
        entries = self.folder.child(f"state/{operator}").entries()
        return sorted(int(name) for name, is_folder, _ in entries if is_folder and name.isdigit())

    def group_sizes(self, max_parallelism: int) -> Iterator[GroupSize]:
        """Yield the sizes of the key groups of each store; skip folders of groups that the query no longer has."""
        for operator in self.operators:
            for group in self.key_groups(operator.number):
                if group < max_parallelism:
                    for store in operator.metadata.stores:
                        yield self._measure_group(operator.number, group, store)

    def _measure_group(self, operator: int, group: int, store: str) -> GroupSize:
        folder = self.folder.child(self.group_path(operator, group, store))
        entries = folder.entries() if folder.exists() else []
        files = [(name, size) for name, is_folder, size in entries if not is_folder]
        version = (self.finished_batch or 0) + 1  # batch n writes version n + 1 of the state
        snapshot_version, size = 0, 0
        rows: int | None = None
        snapshots = {int(match[1]): name for name, _ in files if (match := _ROCKSDB_SNAPSHOT.fullmatch(name))}
        newest = max((number for number in snapshots if number <= version), default=None)
        if newest is not None:
            snapshot_version, (rows, size) = newest, self._read_snapshot_metadata(folder.child(snapshots[newest]))
        in_memory = {int(match[1]): size for name, size in files if (match := _MEMORY_SNAPSHOT.fullmatch(name))}
        newest = max((number for number in in_memory if number <= version), default=None)
        if newest is not None:
            snapshot_version, rows, size = newest, None, in_memory[newest]
        for name, file_size in files:
            match = _CHANGES.fullmatch(name)
            if match and snapshot_version < int(match[1]) <= version:
                rows, size = None, size + file_size
        return GroupSize(operator, store, group, rows, size)

    @staticmethod
    def _read_snapshot_metadata(file: HadoopPath) -> tuple[int | None, int]:
        try:
            with zipfile.ZipFile(io.BytesIO(file.read())) as archive:
                text = archive.read("metadata").decode()
        except (zipfile.BadZipFile, KeyError) as error:
            raise StateError.unreadable(str(file), f"it is not a snapshot: {error}") from error
        return parse_snapshot_metadata(text, str(file))
