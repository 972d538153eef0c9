"""The files of a streaming query's checkpoint."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.spark.io.filesystem import Folder
from penstock.state.layout import CommitEntry, OffsetEntry, OperatorEntry, parse_snapshot_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.bridge.jvm import Bridge

DEFAULT_STORE = "default"
PARTS = ("metadata", "offsets", "commits")
"""The entries that the checkpoint of every started query has."""
_SNAPSHOT = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.zip")
_CHANGES = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(?:changelog|delta)")
_WHOLE = re.compile(r"(\d+)\.snapshot")
"""A snapshot of Spark's in-memory state store."""


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """Rows and bytes of a key group of a store, from its files."""

    operator: int
    store: str
    group: int
    rows: int | None
    """The rows in the newest snapshot, or None if they were not counted."""
    size: int
    """The bytes that Spark reads to load the newest version."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator of the query."""

    entry: OperatorEntry
    path: str
    """The path of the metadata file, relative to the checkpoint."""

    @property
    def number(self) -> int:
        """The operator's number in the checkpoint."""
        return self.entry.operator

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of its stores; most operators have a single store, joins have four."""
        return self.entry.stores


class Checkpoint:
    """The logs and the state of a streaming query; `StateError` is raised if there is no checkpoint at a path."""

    def __init__(self, bridge: Bridge, location: str) -> None:
        self.folder = Folder(bridge, location.rstrip("/") or location)
        if not self.folder.exists():
            raise StateError.no_checkpoint(location, "such folder")
        for name in PARTS:
            if not self.folder.child(name).exists():
                raise StateError.no_checkpoint(location, f"{name!r} in it")

    @property
    def location(self) -> str:
        """The absolute path."""
        return str(self.folder)

    @cached_property
    def query_id(self) -> str:
        """The query's id."""
        return str(json.loads(self.folder.child("metadata").read()).get("id", "?"))

    def latest(self, log: str) -> int | None:
        """Return the newest batch in ``offsets`` or ``commits``, without caching; None if there is none."""
        names = (name for name, is_folder, _ in self.folder.child(log).entries() if not is_folder)
        return max((int(name) for name in names if name.isdigit()), default=None)

    @cached_property
    def batch(self) -> int | None:
        """The newest batch that is done; None if there is none."""
        return self.latest("commits")

    def offsets(self, batch: int) -> OffsetEntry:
        """Return the entry that Spark logged before a batch."""
        return OffsetEntry.parse(*self._text(f"offsets/{batch}"))

    def commit(self, batch: int) -> CommitEntry:
        """Return the entry that Spark logged after a batch."""
        return CommitEntry.parse(*self._text(f"commits/{batch}"))

    def _text(self, path: str) -> tuple[str, str]:
        file = self.folder.child(path)
        if not file.exists():
            raise StateError.unreadable(self.location, f"there is no {path}")
        return file.read().decode(), str(file)

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """The stateful operators, by their numbers."""
        state = self.folder.child("state")
        if not state.exists():
            return ()
        numbers = sorted(int(name) for name, is_folder, _ in state.entries() if is_folder and name.isdigit())
        return tuple(self._operator(number) for number in numbers)

    def _operator(self, number: int) -> Operator:
        path = f"state/{number}/_metadata"
        versioned = self.folder.child(f"{path}/v2")
        if versioned.exists():
            batches = [int(name) for name, _, _ in versioned.entries() if name.isdigit()]
            path = f"{path}/v2/{max(batch for batch in batches if self.batch is None or batch <= self.batch)}"
        else:
            path = f"{path}/metadata"
        return Operator(OperatorEntry.parse(*self._text(path)), path)

    @staticmethod
    def group_path(operator: int, group: int, store: str) -> str:
        """Return the folder of a key group of a store, relative to the checkpoint."""
        path = f"state/{operator}/{group}"
        return path if store == DEFAULT_STORE else f"{path}/{store}"

    def groups(self, operator: int) -> list[int]:
        """Return the key groups that an operator has folders for."""
        entries = self.folder.child(f"state/{operator}").entries()
        return sorted(int(name) for name, is_folder, _ in entries if is_folder and name.isdigit())

    def files(self, max_parallelism: int) -> Iterator[GroupFiles]:
        """Yield the figures of each key group; skip folders that an earlier rescale has left."""
        for operator in self.operators:
            for group in self.groups(operator.number):
                if group < max_parallelism:
                    for store in operator.stores:
                        yield self._group_files(operator.number, group, store)

    def _group_files(self, operator: int, group: int, store: str) -> GroupFiles:
        folder = self.folder.child(self.group_path(operator, group, store))
        entries = folder.entries() if folder.exists() else []
        files = [(name, size) for name, is_folder, size in entries if not is_folder]
        version = (self.batch or 0) + 1
        after, size = 0, 0
        rows: int | None = None
        snapshots = {int(match[1]): name for name, _ in files if (match := _SNAPSHOT.fullmatch(name))}
        newest = max((number for number in snapshots if number <= version), default=None)
        if newest is not None:
            after, (rows, size) = newest, self._snapshot(folder.child(snapshots[newest]))
        whole = {int(match[1]): length for name, length in files if (match := _WHOLE.fullmatch(name))}
        newest = max((number for number in whole if number <= version), default=None)
        if newest is not None:
            after, rows, size = newest, None, whole[newest]
        for name, length in files:
            match = _CHANGES.fullmatch(name)
            if match and after < int(match[1]) <= version:
                rows, size = None, size + length
        return GroupFiles(operator, store, group, rows, size)

    @staticmethod
    def _snapshot(file: Folder) -> tuple[int | None, int]:
        try:
            with zipfile.ZipFile(io.BytesIO(file.read())) as archive:
                text = archive.read("metadata").decode()
        except (zipfile.BadZipFile, KeyError) as error:
            raise StateError.unreadable(str(file), f"it is not a snapshot: {error}") from error
        return parse_snapshot_metadata(text, str(file))
