"""What Spark has measured of a shuffle stage that ran: bytes of each subpartition, its rows, and those of its scans.

Uses ``MapOutputStatistics``, ``ShufflePartitionsUtil`` and ``QueryStageExec.getRuntimeStatistics``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.spark import answers
from penstock.spark.jvm import EXECUTION, items, option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.spark.handles import PhysicalPlan
    from penstock.spark.jvm import Bridge
    from penstock.spark.native_parts import NativeParts
    from penstock.spark.plans import LogicalNode

_WORD = 8
"""Bytes of a value in Spark's rows, and of what says which of them are null."""


def stage_statistics(bridge: Bridge, above: PhysicalPlan, stage: Any, native: NativeParts | None) -> Any:
    """Return what was measured of a stage. If its rows are batches of columns, the rows in them count."""
    measured = stage.getRuntimeStatistics()
    columns = 0 if native is None else int(bridge.helper("NativeExchange").columns(above, stage))
    if native is None or not columns or not row_count(measured):
        return measured
    given = native.rows_given
    # As many bytes as Spark's own rows would take, as other steps are measured by these.
    size = max(whole(measured.sizeInBytes()), (given or 0) * _WORD * (1 + columns))
    return bridge.helper("NativeExchange").statistics(measured, size, -1 if given is None else given)


def subpartition_bytes(bridge: Bridge, stage: Any) -> np.ndarray:
    """Return the bytes of each subpartition of a stage, shape (subpartitions,)."""
    statistics = option(stage.mapStats())
    if statistics is None:  # a shuffle without any mapper
        return np.zeros(_partitions(stage), dtype=np.int64)
    text = bridge.find("java.util.Arrays").toString(statistics.bytesByPartitionId())  # one call, not one per number
    return np.array(json.loads(text), dtype=np.int64)


def mapper_bytes(bridge: Bridge, stage: Any, subpartitions: Sequence[int]) -> np.ndarray:
    """Return the bytes that each task wrote for some subpartitions of a stage, shape (tasks, wanted).

    Uses ``ShufflePartitionsUtil.createSkewPartitionSpecs`` with a target of a byte, so that every task that wrote
    anything becomes a slice; the tracker of map outputs itself cannot be called from Python.
    """
    mappers = int(stage.shuffle().numMappers())
    sizes = np.zeros((max(mappers, 1), len(subpartitions)), dtype=np.int64)
    if not mappers:  # no task ran, so Spark does not know the shuffle
        return sizes
    wholes = subpartition_bytes(bridge, stage)
    util = bridge.companion(EXECUTION + "adaptive.ShufflePartitionsUtil")
    for place, index in enumerate(subpartitions):
        slices = option(util.createSkewPartitionSpecs(stage.shuffle().shuffleId(), index, 1, 0.0))
        if slices is None:  # all of it was written by one task
            sizes[0, place] = wholes[index]
            continue
        for one in items(slices):
            sizes[int(one.startMapIndex()), place] = int(one.dataSize())
    return sizes


def _partitions(stage: Any) -> int:
    return int(stage.shuffle().numPartitions())


def row_count(statistics: Any) -> int | None:
    """Return the rows of Spark's statistics, None if they are not known."""
    count = option(statistics.rowCount())
    return None if count is None else whole(count)


def whole(value: Any) -> int:
    """Return a whole number of Scala's."""
    return int(value if isinstance(value, int) else value.toString())


def scanned_rows(plan: PhysicalPlan, leaves: Mapping[int, LogicalNode]) -> dict[int, int]:
    """Return how many rows a plan that has run has read from some relations, by the relations' numbers.

    Uses the metric ``numOutputRows`` of scans.
    """
    counts: dict[int, int] = {}
    for number, scan in _scans(plan, leaves):
        counts[number] = counts.get(number, 0) + scan.rows
    return counts


def filtered_rows(plan: PhysicalPlan, leaves: Mapping[int, LogicalNode]) -> dict[int, int]:
    """Return how many rows of some relations the filters right above them have kept, by the relations' numbers.

    Those that DuckDB reads are not counted.
    """
    counts: dict[int, int] = {}
    for number, scan in _scans(plan, leaves):
        if scan.kept is not None:
            counts[number] = counts.get(number, 0) + scan.kept
    return counts


def _scans(plan: PhysicalPlan, leaves: Mapping[int, LogicalNode]) -> Iterator[tuple[int, _Scanned]]:
    """Return the scans that a plan has of some relations, each with the relation's number."""
    for facts in answers.facts(plan._bridge.helper("ScanMetrics").rows(plan)):
        scan = _Scanned.of(facts)
        for number, leaf in leaves.items():
            if scan.columns and leaf.has(scan.columns):
                yield number, scan


@dataclass(frozen=True, slots=True)
class _Scanned:
    """The columns of a scan, by their ids, the rows that it gave, and how many of them the filters above it kept.

    The last is None where it was not counted.
    """

    columns: tuple[str, ...]
    rows: int
    kept: int | None

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _Scanned:
        return cls(tuple(facts["columns"]), facts["rows"], facts["kept"])
