"""Offsets of a stream in Spark's checkpoint, each with the decision about its batch.

An offset is ``{"topic-partition": offset, ..., "penstock": {...}}``. So each decision is stored with its batch, and a
restarted query has the same splits and the measured pace. Keys of partitions contain a dash, so they do not collide
with that of the decision.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.streams.micro_batches import BatchDecision
from penstock.connectors.kafka.streams.pace import MeasuredBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "penstock"
PartitionId = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The decision about a batch, and the measurements before: the previous batch, and the retained ones, latest last.

    `before` is None if there is none, as after a restart. `reader` is the name under which the driver reports the batch
    duration, see `batch_duration_file`; None if it is not needed.
    """

    decision: BatchDecision
    before: MeasuredBatch | None = None
    ran: tuple[MeasuredBatch, ...] = ()
    reader: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            **asdict(self.decision),
            "before": None if self.before is None else _batch_as_json(self.before),
            "ran": [_batch_as_json(batch) for batch in self.ran],
            "reader": self.reader,
        }


def _batch_as_json(batch: MeasuredBatch) -> dict[str, Any]:
    return asdict(batch) | {"seconds": round(batch.seconds, 3)}


def planned_of(offset: Mapping[str, Any]) -> PlannedBatch | None:
    """Return the decision in an offset, None if there is none: in offsets of older releases and of other sources."""
    planned = offset.get(KEY)
    if not isinstance(planned, dict) or "lag" not in planned:  # Spark's own source may have a topic of this name
        return None
    decision = BatchDecision(
        int(planned["lag"]), int(planned["records"]), int(planned["tasks"]), str(planned["reason"])
    )
    before, ran = planned["before"], tuple(MeasuredBatch(**batch) for batch in planned["ran"])
    return PlannedBatch(decision, before and MeasuredBatch(**before), ran, planned.get("reader"))


def partition_offsets(offset: Mapping[str, Any]) -> dict[PartitionId, int]:
    """Return the offset of each partition."""
    offsets: dict[PartitionId, int] = {}
    for name, value in offset.items():
        if name != KEY:
            topic, _, partition = name.rpartition("-")
            offsets[topic, int(partition)] = int(value)
    return offsets


def offset_of(reached: Mapping[PartitionId, int], planned: PlannedBatch | None = None) -> dict[str, Any]:
    """Return an offset in the form that Spark stores."""
    offset: dict[str, Any] = {f"{topic}-{partition}": reached[topic, partition] for topic, partition in sorted(reached)}
    return offset if planned is None else offset | {KEY: planned.as_json()}
