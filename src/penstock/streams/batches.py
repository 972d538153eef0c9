"""The decision for each batch of a query and its duration, as recorded in the offsets of the checkpoint."""

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
    from penstock.connectors.pace import MeasuredBatch


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The decision for a source of a query in a batch, and the duration of the batch.

    Parameters
    ----------
    source
        The index of the source in the query, from 0.
    ran
        The records and the duration; None if the batch is running, or the query was stopped during it.
    """

    batch: int
    source: int
    decision: BatchDecision
    ran: MeasuredBatch | None

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def parse_batches(logs: Mapping[int, str], path: str) -> list[BatchRecord]:
    """Return the batches that Penstock decided, in order.

    Parameters
    ----------
    logs
        The texts of the files in a checkpoint's ``offsets``, by batch.
    """
    entries = {batch: OffsetEntry.parse(logs[batch], f"{path}/offsets/{batch}").sources for batch in sorted(logs)}
    records = []
    for source in range(max(map(len, entries.values()), default=0)):
        planned: dict[int, PlannedBatch] = {}
        last_offset = None
        for number, offsets in entries.items():
            offset = offsets[source] if source < len(offsets) else {}
            batch = planned_of(offset)
            if batch is not None and offset != last_offset:  # otherwise this source had nothing to read
                planned[number] = batch
            last_offset = offset
        durations = [batch.before for batch in planned.values()][1:]  # each batch records its predecessor
        for (number, batch), ran in zip_longest(planned.items(), durations):
            records.append(BatchRecord(number, source, batch.decision, ran))
    return sorted(records, key=lambda record: (record.batch, record.source))
