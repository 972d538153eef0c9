"""The text files in which Structured Streaming stores its logs and the metadata of operators."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Self

from penstock.errors import StateError

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A file whose first line is a version and whose second line is JSON; further lines are preserved unchanged."""

    version: str
    content: dict[str, Any]
    rest: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, path: str) -> Self:
        """Parse an entry; raise `StateError` if the text is not an entry."""
        version, *lines = text.split("\n")
        try:
            content = json.loads(lines[0]) if lines else None
        except ValueError:
            content = None
        if not version.startswith("v") or not isinstance(content, dict):
            raise StateError.unreadable(path, f"it begins with {text[:40]!r}")
        return cls(version, content, tuple(lines[1:]))

    def __str__(self) -> str:
        return "\n".join((self.version, json.dumps(self.content, separators=(",", ":")), *self.rest))


class OffsetEntry(LogEntry):
    """The planned offsets of a batch, and its settings."""

    @property
    def conf(self) -> dict[str, str]:
        """The settings that are fixed with the first batch."""
        return dict(self.content.get("conf", {}))

    @property
    def max_parallelism(self) -> int | None:
        """The number of state partitions."""
        value = self.conf.get(SHUFFLE_PARTITIONS)
        return int(value) if value else None

    @property
    def sources(self) -> list[dict[str, Any]]:
        """The end offset of each source; empty if it is not a JSON object."""
        offsets = []
        for line in self.rest:
            try:
                offset = json.loads(line)
            except ValueError:
                offset = None
            offsets.append(offset if isinstance(offset, dict) else {})
        return offsets

    def with_max_parallelism(self, number: int) -> Self:
        """Return the entry with another number of state partitions."""
        return replace(self, content=self.content | {"conf": self.conf | {SHUFFLE_PARTITIONS: str(number)}})


class CommitEntry(LogEntry):
    """The commit of a batch: its next watermark, and in format version 2 the ids of its state versions."""

    @property
    def format_version(self) -> int:
        """The format version of the checkpoint: 1, or 2 with unique ids for versions of state."""
        return int(self.version[1:])

    def with_checkpoint_ids(self, ids: dict[int, list[list[str]]]) -> Self:
        """Return the entry with other unique ids, by operator: for each key group those of its stores."""
        if self.format_version == 1:
            return self
        by_operator = {str(operator): groups for operator, groups in ids.items()}
        return replace(self, content=self.content | {"stateUniqueIds": by_operator})


class OperatorEntry(LogEntry):
    """The metadata of a stateful operator."""

    @property
    def operator(self) -> int:
        """The operator's number."""
        return int(self.content["operatorInfo"]["operatorId"])

    @property
    def name(self) -> str:
        """The operator's name, such as ``stateStoreSave``."""
        return str(self.content["operatorInfo"]["operatorName"])

    @property
    def stores(self) -> tuple[str, ...]:
        """The names of its stores."""
        return tuple(str(store["storeName"]) for store in self.content["stateStoreInfo"])

    def with_max_parallelism(self, number: int) -> Self:
        """Return the metadata with another number of state partitions."""
        stores = [store | {"numPartitions": number} for store in self.content["stateStoreInfo"]]
        return replace(self, content=self.content | {"stateStoreInfo": stores})


def parse_snapshot_metadata(text: str, path: str) -> tuple[int | None, int]:
    """Return the keys of a RocksDB snapshot, None if they were not counted, and the bytes of its SST files.

    Raise `StateError` if the text of the file ``metadata`` is damaged.
    """
    try:
        content = json.loads(text.partition("\n")[2])
        keys = int(content["numKeys"])
        internal = max(int(content.get("numInternalKeys", 0)), 0)
        size = sum(int(file["sizeBytes"]) for file in content["sstFiles"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError.unreadable(path, f"its metadata is {text[:40]!r}") from error
    return keys + internal if keys >= 0 else None, size
