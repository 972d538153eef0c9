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
    further_lines: tuple[str, ...] = ()

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
        return "\n".join((self.version, json.dumps(self.content, separators=(",", ":")), *self.further_lines))


class OffsetEntry(LogEntry):
    """The planned offsets of a batch, and its settings."""

    @property
    def conf(self) -> dict[str, str]:
        """The Spark settings that Spark fixes at the first batch of a query, as strings."""
        return dict(self.content.get("conf", {}))

    @property
    def max_parallelism(self) -> int | None:
        """The number of state partitions; None if the entry has no such setting."""
        value = self.conf.get(SHUFFLE_PARTITIONS)
        return int(value) if value else None

    @property
    def source_offsets(self) -> list[dict[str, Any]]:
        """The end offset of each source; an empty mapping for an offset that is not a JSON object."""
        return list(map(parse_offset, self.further_lines))

    def with_max_parallelism(self, number: int) -> Self:
        """Return the entry with another number of state partitions."""
        return replace(self, content=self.content | {"conf": self.conf | {SHUFFLE_PARTITIONS: str(number)}})


class CommitEntry(LogEntry):
    """The commit of a batch: the next watermark, and in format version 2 the ids of the new state versions."""

    @property
    def format_version(self) -> int:
        """The format version of the checkpoint: 1, or 2 with unique ids for versions of state."""
        return int(self.version[1:])

    def with_checkpoint_ids(self, ids: dict[int, list[list[str]]]) -> Self:
        """Return the entry with other ids of state versions (by operator, key group, store); unchanged in version 1."""
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
        """The names of the operator's stores; most operators have a single store, joins up to four."""
        return tuple(str(store["storeName"]) for store in self.content["stateStoreInfo"])

    def with_max_parallelism(self, number: int) -> Self:
        """Return the metadata with another number of state partitions."""
        stores = [store | {"numPartitions": number} for store in self.content["stateStoreInfo"]]
        return replace(self, content=self.content | {"stateStoreInfo": stores})


def parse_offset(reported: object) -> dict[str, Any]:
    """Return the offset of a source, which Spark reports as an object or as JSON text; empty if it is neither."""
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    return reported if isinstance(reported, dict) else {}


def parse_snapshot_metadata(text: str, path: str) -> tuple[int | None, int]:
    """Return the number of keys of a RocksDB snapshot, None if not counted, and the bytes of its SST files.

    The keys include internal keys. Raise `StateError` if the text of the file ``metadata`` is damaged.
    """
    try:
        content = json.loads(text.partition("\n")[2])
        keys = int(content["numKeys"])
        internal_keys = max(int(content.get("numInternalKeys", 0)), 0)
        sst_bytes = sum(int(file["sizeBytes"]) for file in content["sstFiles"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError.unreadable(path, f"its metadata is {text[:40]!r}") from error
    return keys + internal_keys if keys >= 0 else None, sst_bytes
