"""Offsets of a stream in Spark's checkpoint, each with the decision about its batch.

An offset is ``{"topic-partition": offset, ..., "penstock": {...}}``. So each decision is stored with its batch, and a
restarted query has the same splits and the measured pace. Keys of partitions contain a dash, so they do not collide
with that of the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.micro_batches import BatchDecision
from penstock.connectors.pace import MeasuredBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "penstock"
PartitionId = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The decision about a batch, and the measurements until then.

    Parameters
    ----------
    decision
        The decision.
    before
        The measurement of the previous batch, None if there is none, as after a restart.
    ran
        The retained measurements, the latest last.
    reader
        The name under which the driver reports the batch duration, see `batch_duration_file`; None if it is not needed.
    """

    decision: BatchDecision
    before: MeasuredBatch | None = None
    ran: tuple[MeasuredBatch, ...] = ()
    reader: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "lag": self.decision.lag,
            "records": self.decision.records,
            "tasks": self.decision.tasks,
            "reason": self.decision.reason,
            "before": None if self.before is None else _batch_as_json(self.before),
            "ran": [_batch_as_json(batch) for batch in self.ran],
            "reader": self.reader,
        }


def _batch_as_json(batch: MeasuredBatch) -> dict[str, Any]:
    return {"records": batch.records, "seconds": round(batch.seconds, 3), "waited": batch.waited}


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
    return {_parse_partition(name): int(value) for name, value in offset.items() if name != KEY}


def offset_of(reached: Mapping[PartitionId, int], planned: PlannedBatch | None = None) -> dict[str, Any]:
    """Return an offset in the form that Spark stores."""
    offset: dict[str, Any] = {f"{topic}-{partition}": reached[topic, partition] for topic, partition in sorted(reached)}
    return offset if planned is None else offset | {KEY: planned.as_json()}


def _parse_partition(name: str) -> PartitionId:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)
