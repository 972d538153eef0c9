"""Offsets of a stream in Spark's checkpoint, each with the decision about its batch.

An offset is ``{"topic-partition": offset, ..., "penstock": {...}}``. So each decision is stored with its batch, and a
restarted query has the same splits and the measured pace. Keys of partitions contain a dash, so none equals `KEY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.connectors.kafka.streams.micro_batches import BatchDecision
from penstock.connectors.kafka.streams.pace import MeasuredBatch

KEY = "penstock"
PartitionId = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The decision about a batch, and the measurements of earlier batches; stored in the end offset of the batch.

    `previous_batch` (`before` in the JSON) is the batch before this batch; None after a restart, when its duration is
    unknown. `measured_batches` (`ran` in the JSON) are the batches from which the pace is estimated, as selected by
    `pace.remember`. `reader` is the name under which the driver reports the duration of this batch, see
    `batch_duration_file`; None if no duration is needed.
    """

    decision: BatchDecision
    previous_batch: MeasuredBatch | None = None
    measured_batches: tuple[MeasuredBatch, ...] = ()
    reader: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that offsets store."""
        return {
            **asdict(self.decision),
            "before": None if self.previous_batch is None else _batch_as_json(self.previous_batch),
            "ran": [_batch_as_json(batch) for batch in self.measured_batches],
            "reader": self.reader,
        }


def _batch_as_json(batch: MeasuredBatch) -> dict[str, Any]:
    return asdict(batch) | {"seconds": round(batch.seconds, 3)}


def planned_batch_of(offset: Mapping[str, Any]) -> PlannedBatch | None:
    """Return the decision and measurements in an offset; None for offsets of older releases and of other sources."""
    planned = offset.get(KEY)
    if not isinstance(planned, dict) or "lag" not in planned:  # Spark's own source: `KEY` is a topic
        return None
    decision = BatchDecision(
        int(planned["lag"]), int(planned["records"]), int(planned["tasks"]), str(planned["reason"])
    )
    previous, measured = planned["before"], tuple(MeasuredBatch(**batch) for batch in planned["ran"])
    return PlannedBatch(decision, previous and MeasuredBatch(**previous), measured, planned.get("reader"))


def partition_offsets(offset: Mapping[str, Any]) -> dict[PartitionId, int]:
    """Return the offset of each partition."""
    offsets: dict[PartitionId, int] = {}
    for name, value in offset.items():
        if name != KEY:
            topic, _, partition = name.rpartition("-")
            offsets[topic, int(partition)] = int(value)
    return offsets


def to_offset(offsets: Mapping[PartitionId, int], planned: PlannedBatch | None = None) -> dict[str, Any]:
    """Return an offset in the form that Spark stores."""
    offset: dict[str, Any] = {f"{topic}-{partition}": offsets[topic, partition] for topic, partition in sorted(offsets)}
    return offset if planned is None else offset | {KEY: planned.as_json()}
