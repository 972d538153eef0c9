"""What Spark says of a query's batches (``StreamingQueryProgress``), as typed values."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.stream_offsets import KEY, planned_of
from penstock.errors import StreamError
from penstock.state.progress_files import OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.connectors.micro_batches import BatchDecision


_PARTITION = re.compile(r".+-\d+")


@dataclass(frozen=True, slots=True)
class OperatorState:
    """A stateful operator after a batch.

    Parameters
    ----------
    name
        Spark's name of it, such as ``stateStoreSave``.
    partitions
        Its state partitions (key groups).
    size
        The bytes of its state: of RocksDB those of its files, else those in memory.
    """

    name: str
    partitions: int
    size: int


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A batch that has run.

    Parameters
    ----------
    query
        The query's name, or its id.
    batch
        Its number.
    began
        Seconds since the epoch.
    seconds
        How long it took, without waiting for the trigger.
    rows
        What it read.
    ends
        The records that its topics have ever had when it was planned, None if a source does not tell.
    lag
        The records that it left waiting, None if a source does not tell.
    decision
        What Penstock decided for it, None if its source is another.
    cores
        The cores of the cluster, None if nobody recorded them.
    state
        Its stateful operators.
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


def progress_of(texts: Iterable[str], path: str) -> list[BatchProgress]:
    """Return the batches that ran, in their order.

    Parameters
    ----------
    texts
        Events as JSON, each as ``StreamingQueryProgress.json`` has it.
    path
        Where they are from, for the message.

    Raises
    ------
    StreamError
        If one is not such an event, or they are of several queries.
    """
    found: dict[int, BatchProgress] = {}
    queries = set()
    for number, text in enumerate(texts, 1):
        try:
            event = json.loads(text)
            if "addBatch" not in event["durationMs"]:
                continue  # Spark only looked for new rows
            one = _batch(event)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StreamError.no_progress(path, f"event {number} is {text[:60]!r}") from error
        queries.add(event["id"])
        found[one.batch] = one
    if len(queries) > 1:
        raise StreamError.several_queries(path, len(queries))
    return [found[batch] for batch in sorted(found)]


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
        decision=next((one.decision for one in planned if one is not None), None),
        cores=event.get(OURS, {}).get("cores"),
        state=tuple(_state(operator) for operator in event["stateOperators"]),
    )


def _offset(told: object) -> dict[str, Any]:
    """Return an offset of a source, which Spark tells as an object or as its text; empty if it is another thing."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return {}
    return told if isinstance(told, dict) else {}


def _records(offset: Mapping[str, Any]) -> int | None:
    """Return the sum of the offsets of topics, None if the source is another.

    Penstock's source has ``{"topic-0": 5}``, and Spark's own ``{"topic": {"0": 5}}``.
    """
    total, is_topic = 0, False
    for name, value in offset.items():
        if isinstance(value, dict) and value and all(one.isdigit() for one in value):
            total, is_topic = total + sum(map(int, value.values())), True
        elif isinstance(value, int) and _PARTITION.fullmatch(name):
            total, is_topic = total + value, True
        elif name != KEY:
            return None
    return total if is_topic else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return a sum, None if there is nothing to add or a part of it is not known."""
    found = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if found and len(known) == len(found) else None


def _state(operator: Mapping[str, Any]) -> OperatorState:
    files = operator.get("customMetrics", {}).get("rocksdbSstFileSize", 0)
    return OperatorState(
        str(operator["operatorName"]),
        int(operator.get("numShufflePartitions") or operator["numStateStoreInstances"]),
        int(files or operator["memoryUsedBytes"]),
    )
