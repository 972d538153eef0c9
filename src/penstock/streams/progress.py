"""Progress of a query's batches (Spark's ``StreamingQueryProgress``), and Penstock's decisions, as typed values."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.streams.offsets import KEY, planned_batch_of
from penstock.errors import StreamError
from penstock.state.log_entries import OffsetEntry, parse_offset
from penstock.state.progress_files import PENSTOCK_KEY

if TYPE_CHECKING:
    from penstock.connectors.kafka.streams.micro_batches import BatchDecision
    from penstock.connectors.kafka.streams.offsets import PlannedBatch
    from penstock.connectors.kafka.streams.pace import MeasuredBatch

_PARTITION = re.compile(r".+-\d+")  # a topic and a partition, such as "topic-0", in offsets of Penstock's source


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of an operator after a batch."""

    name: str
    """Spark's name of the operator, such as ``stateStoreSave``."""
    partitions: int
    size: int
    """Bytes of the state: of its files for RocksDB, in memory for other state stores."""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A finished batch.

    `query` is the query's name, or its id if it has no name. `started` is in seconds since the epoch; `seconds` is the
    duration without waiting for the trigger. `end_offset_sum` is the sum of the topics' end offsets when the batch was
    planned, and `lag` the number of records that it left unread; both are None if a source reports no end offsets.
    `decision` is that of Penstock's source, None without it. `cores` is the number of cluster cores, None if unknown.
    """

    query: str
    batch: int
    started: float
    seconds: float
    rows: int
    end_offset_sum: int | None
    lag: int | None
    decision: BatchDecision | None
    cores: int | None
    state: tuple[OperatorState, ...]


def parse_progress(texts: Iterable[str], path: str) -> list[BatchProgress]:
    """Return the batches that ran, in order; each text is the ``json`` of a ``StreamingQueryProgress``.

    Raise `StreamError`, which names `path`, if a text is not such an event, or the events belong to several queries.
    """
    batches: dict[int, BatchProgress] = {}
    queries = set()
    for number, text in enumerate(texts, 1):
        try:
            event = json.loads(text)
            if "addBatch" not in event["durationMs"]:
                continue  # Spark only looked for new rows, and ran no batch
            batch = _parse_batch(event)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError.no_progress(path, f"event {number} is {text[:60]!r}") from error
        queries.add(event["id"])
        batches[batch.batch] = batch
    if len(queries) > 1:
        raise StreamError(f"{path} has the progress of {len(queries)} queries", hint="write a file for each of them")
    return [batches[number] for number in sorted(batches)]


def _parse_batch(event: Mapping[str, Any]) -> BatchProgress:
    offsets = [parse_offset(source.get("endOffset")) for source in event["sources"]]
    read_sum = _sum_or_none(_sum_offsets(offset) for offset in offsets)
    end_sum = _sum_or_none(_sum_offsets(parse_offset(source.get("latestOffset"))) for source in event["sources"])
    planned = [planned_batch_of(offset) for offset in offsets]
    started = dt.datetime.fromisoformat(event["timestamp"]).timestamp()
    return BatchProgress(
        query=event.get("name") or event["id"],
        batch=int(event["batchId"]),
        started=started,
        seconds=int(event["durationMs"]["triggerExecution"]) / 1000,
        rows=int(event["numInputRows"]),
        end_offset_sum=end_sum,
        lag=None if end_sum is None or read_sum is None else max(end_sum - read_sum, 0),
        decision=next((batch.decision for batch in planned if batch is not None), None),
        cores=event.get(PENSTOCK_KEY, {}).get("cores"),
        state=tuple(_parse_state(operator) for operator in event["stateOperators"]),
    )


def _sum_offsets(offset: Mapping[str, Any]) -> int | None:
    """Return the sum of a source's offsets over all topic partitions; None if the source does not read topics.

    Penstock's source reports ``{"topic-0": 5}``, and Spark's source ``{"topic": {"0": 5}}``.
    """
    total, is_topic = 0, False
    for name, value in offset.items():
        if isinstance(value, dict) and value and all(partition.isdigit() for partition in value):
            total, is_topic = total + sum(map(int, value.values())), True
        elif isinstance(value, int) and _PARTITION.fullmatch(name):
            total, is_topic = total + value, True
        elif name != KEY:  # Penstock's source stores its decision under this key
            return None
    return total if is_topic else None


def _sum_or_none(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if there are no numbers, or a number is None."""
    total = None
    for number in numbers:
        if number is None:
            return None
        total = (total or 0) + number
    return total


def _parse_state(operator: Mapping[str, Any]) -> OperatorState:
    file_bytes = operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    return OperatorState(
        str(operator["operatorName"]),
        int(operator.get("numShufflePartitions") or operator["numStateStoreInstances"]),
        int(file_bytes or operator["memoryUsedBytes"]),
    )


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Penstock's decision for a source of a query in a batch, and the duration of the batch."""

    batch: int
    source: int
    """The index of the source in the query, from 0."""
    decision: BatchDecision
    ran: MeasuredBatch | None
    """The measured size and duration, which the next batch stores; None for the last batch of each run."""

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


def parse_batches(logs: Mapping[int, str], path: str) -> list[BatchRecord]:
    """Return the batches whose records Penstock chose, in order, as recorded in the offsets of the checkpoint.

    `logs` has the texts of the files in a checkpoint's ``offsets``, by batch.
    """
    entries = {
        batch: OffsetEntry.parse(logs[batch], f"{path}/offsets/{batch}").source_offsets for batch in sorted(logs)
    }
    records = []
    for source in range(max(map(len, entries.values()), default=0)):
        planned: dict[int, PlannedBatch] = {}
        last_offset = None
        for number, offsets in entries.items():
            offset = offsets[source] if source < len(offsets) else {}
            batch = planned_batch_of(offset)
            if batch is not None and offset != last_offset:  # an unchanged offset: nothing was read
                planned[number] = batch
            last_offset = offset
        measured = [batch.previous_batch for batch in planned.values()][1:]  # each batch records the batch before it
        for (number, batch), ran in zip_longest(planned.items(), measured):
            records.append(BatchRecord(number, source, batch.decision, ran))
    return sorted(records, key=lambda record: (record.batch, record.source))
