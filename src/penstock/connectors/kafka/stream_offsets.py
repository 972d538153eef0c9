"""Offsets of a stream as Spark's checkpoint keeps them, with the decision that each batch was made by.

An offset is ``{"topic-partition": offset, ..., "penstock": {...}}``. So a decision is written together with its batch,
a restarted query makes the same splits, and it still knows the pace. Names of partitions have a dash, so none of them
can be taken for the decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.micro_batches import BatchDecision
from penstock.connectors.pace import RanBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "penstock"
Place = tuple[str, int]
"""A topic and a partition of it."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The decision of a batch, and what was measured until then.

    Parameters
    ----------
    decision
        What it reads.
    before
        What the batch before it took, None if that is not known, as after a restart.
    ran
        Measured batches, the latest last.
    reader
        The name by which the driver tells its reader what it took, see `told_times`; None if that does not matter.
    """

    decision: BatchDecision
    before: RanBatch | None = None
    ran: tuple[RanBatch, ...] = ()
    reader: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "lag": self.decision.lag,
            "records": self.decision.records,
            "tasks": self.decision.tasks,
            "reason": self.decision.reason,
            "before": None if self.before is None else _measured(self.before),
            "ran": [_measured(one) for one in self.ran],
            "reader": self.reader,
        }


def _measured(one: RanBatch) -> dict[str, Any]:
    return {"records": one.records, "seconds": round(one.seconds, 3), "waited": one.waited}


def planned_of(offset: Mapping[str, Any]) -> PlannedBatch | None:
    """Return the decision in an offset, None if there is none: it is of an older release, or of another source."""
    told = offset.get(KEY)
    if not isinstance(told, dict) or "lag" not in told:  # Spark's own source has a topic of this name
        return None
    decision = BatchDecision(int(told["lag"]), int(told["records"]), int(told["tasks"]), str(told["reason"]))
    before, ran = told["before"], tuple(RanBatch(**one) for one in told["ran"])
    return PlannedBatch(decision, before and RanBatch(**before), ran, told.get("reader"))


def places_of(offset: Mapping[str, Any]) -> dict[Place, int]:
    """Return the offset of each partition."""
    return {_place(name): int(value) for name, value in offset.items() if name != KEY}


def offset_of(reached: Mapping[Place, int], planned: PlannedBatch | None = None) -> dict[str, Any]:
    """Return an offset as Spark keeps it."""
    found: dict[str, Any] = {f"{topic}-{partition}": reached[topic, partition] for topic, partition in sorted(reached)}
    return found if planned is None else found | {KEY: planned.as_json()}


def _place(name: str) -> Place:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)
