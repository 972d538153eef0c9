"""The batches of a query as its checkpoint tells them: what was decided for each, and what it took."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.stream_offsets import planned_of
from penstock.state.layout import OffsetEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.kafka.stream_offsets import PlannedBatch
    from penstock.connectors.micro_batches import BatchDecision
    from penstock.connectors.pace import RanBatch


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """What one source of a query read in one batch.

    Parameters
    ----------
    batch
        The batch's number.
    source
        The source's place in the query, from 0 on.
    decision
        What was decided.
    ran
        What it took, None if it runs, or the query was stopped in it.
    """

    batch: int
    source: int
    decision: BatchDecision
    ran: RanBatch | None

    def as_dict(self) -> dict[str, Any]:
        """Return it for programs."""
        return asdict(self)


def batches_of(logs: Mapping[int, str], path: str) -> list[BatchRecord]:
    """Return the batches that Penstock decided, in their order.

    Parameters
    ----------
    logs
        The texts of a checkpoint's files ``offsets``, by their batches.
    path
        The checkpoint, for messages.
    """
    entries = {batch: OffsetEntry.parse(logs[batch], f"{path}/offsets/{batch}").sources for batch in sorted(logs)}
    found = []
    for source in range(max(map(len, entries.values()), default=0)):
        planned: dict[int, PlannedBatch] = {}
        last = None
        for batch, offsets in entries.items():
            offset = offsets[source] if source < len(offsets) else {}
            one = planned_of(offset)
            if one is not None and offset != last:  # else this source had nothing to read
                planned[batch] = one
            last = offset
        following = [one.before for one in planned.values()][1:]
        for (batch, one), ran in zip_longest(planned.items(), following):
            found.append(BatchRecord(batch, source, one.decision, ran))
    return sorted(found, key=lambda one: (one.batch, one.source))
