"""Progress of a query's batches (Spark's ``StreamingQueryProgress``) as typed values."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.stream_offsets import KEY, planned_of
from penstock.errors import StreamError
from penstock.state.progress_files import PENSTOCK_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.connectors.micro_batches import BatchDecision


_PARTITION = re.compile(r".+-\d+")


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of an operator after a batch.

    Parameters
    ----------
    name
        Spark's name of the operator, such as ``stateStoreSave``.
    size
        The bytes of the state: of its files for RocksDB, otherwise in memory.
    """

    name: str
    partitions: int
    size: int


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A finished batch.

    Parameters
    ----------
    query
        The name of the query, or its id if it has no name.
    began
        The start time, in seconds since the epoch.
    seconds
        The duration, without waiting for the trigger.
    ends
        The sum of the end offsets of its topics when it was planned; None if a source does not report them.
    lag
        The number of records that it left unread; None if a source does not report it.
    decision
        Penstock's decision for the batch; None if its source is not Penstock's.
    cores
        The cores of the cluster; None if they were not recorded.
    """

    query: str
    batch: int
    began: float
    seconds: float
    rows: int
    ends: int | None
    lag: int | None
    decision: BatchDecision | None
    cores: int | None
    state: tuple[OperatorState, ...]


def parse_progress(texts: Iterable[str], path: str) -> list[BatchProgress]:
    """Return the batches that ran, in order.

    Parameters
    ----------
    texts
        The events, as JSON of ``StreamingQueryProgress.json``.

    Raises
    ------
    StreamError
        If a text is not such an event, or the events belong to several queries.
    """
    batches: dict[int, BatchProgress] = {}
    queries = set()
    for number, text in enumerate(texts, 1):
        try:
            event = json.loads(text)
            if "addBatch" not in event["durationMs"]:
                continue  # Spark only looked for new rows
            batch = _batch(event)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError.no_progress(path, f"event {number} is {text[:60]!r}") from error
        queries.add(event["id"])
        batches[batch.batch] = batch
    if len(queries) > 1:
        raise StreamError.several_queries(path, len(queries))
    return [batches[number] for number in sorted(batches)]


def _batch(event: Mapping[str, Any]) -> BatchProgress:
    offsets = [_offset(source.get("endOffset")) for source in event["sources"]]
    read = _sum(_records(offset) for offset in offsets)
    ends = _sum(_records(_offset(source.get("latestOffset"))) for source in event["sources"])
    planned = [planned_of(offset) for offset in offsets]
    began = dt.datetime.fromisoformat(event["timestamp"]).timestamp()
    return BatchProgress(
        query=event.get("name") or event["id"],
        batch=int(event["batchId"]),
        began=began,
        seconds=int(event["durationMs"]["triggerExecution"]) / 1000,
        rows=int(event["numInputRows"]),
        ends=ends,
        lag=None if ends is None or read is None else max(ends - read, 0),
        decision=next((batch.decision for batch in planned if batch is not None), None),
        cores=event.get(PENSTOCK_KEY, {}).get("cores"),
        state=tuple(_state(operator) for operator in event["stateOperators"]),
    )


def _offset(reported: object) -> dict[str, Any]:
    """Return the offset of a source, which Spark reports as an object or as JSON text; empty if it is neither."""
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    return reported if isinstance(reported, dict) else {}


def _records(offset: Mapping[str, Any]) -> int | None:
    """Return the sum of the offsets of a topic's partitions; None if the source is not a topic.

    Penstock's source reports ``{"topic-0": 5}``, and Spark's own ``{"topic": {"0": 5}}``.
    """
    total, is_topic = 0, False
    for name, value in offset.items():
        if isinstance(value, dict) and value and all(partition.isdigit() for partition in value):
            total, is_topic = total + sum(map(int, value.values())), True
        elif isinstance(value, int) and _PARTITION.fullmatch(name):
            total, is_topic = total + value, True
        elif name != KEY:
            return None
    return total if is_topic else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if there are no numbers, or any of them is None."""
    total = None
    for number in numbers:
        if number is None:
            return None
        total = (total or 0) + number
    return total


def _state(operator: Mapping[str, Any]) -> OperatorState:
    files = operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    return OperatorState(
        str(operator["operatorName"]),
        int(operator.get("numShufflePartitions") or operator["numStateStoreInstances"]),
        int(files or operator["memoryUsedBytes"]),
    )
