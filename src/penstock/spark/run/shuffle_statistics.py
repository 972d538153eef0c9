"""Statistics of a shuffle stage that has run: bytes of each subpartition, rows of the stage and of its scans."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.spark.bridge import answers
from penstock.spark.bridge.jvm import EXECUTION, Bridge, items, option

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import PhysicalPlan
    from penstock.spark.plans.nodes import LogicalNode
    from penstock.spark.run.stage_rewriter import StageRewriter

_WORD_BYTES = 8
"""Bytes of a value in Spark's rows, and of the null bits of a row."""


def stage_statistics(bridge: Bridge, plan: PhysicalPlan, stage: Any, native: StageRewriter | None) -> Any:
    """Return Spark's statistics of a stage; if `native` wrote batches of columns, count rows instead of batches."""
    measured = stage.getRuntimeStatistics()
    columns = 0 if native is None else int(bridge.helper("ColumnarExchange").columnCount(plan, stage))
    if native is None or not columns or not row_count(measured):
        return measured
    rows = native.rows_returned
    # At least the size that the rows would have in Spark's format, because it is compared with other stages' sizes.
    size = max(to_int(measured.sizeInBytes()), (rows or 0) * _WORD_BYTES * (1 + columns))
    return bridge.helper("ColumnarExchange").statistics(measured, size, -1 if rows is None else rows)


def subpartition_bytes(bridge: Bridge, stage: Any) -> np.ndarray:
    """Return the bytes of each subpartition of a stage, shape (subpartitions,)."""
    statistics = option(stage.mapStats())
    if statistics is None:  # a shuffle without mappers
        return np.zeros(int(stage.shuffle().numPartitions()), dtype=np.int64)
    text = bridge.find("java.util.Arrays").toString(statistics.bytesByPartitionId())  # a single call
    return np.array(json.loads(text), dtype=np.int64)


def mapper_bytes(bridge: Bridge, stage: Any, subpartitions: Sequence[int]) -> np.ndarray:
    """Return the bytes that each task wrote to some subpartitions of a stage, shape (tasks, subpartitions).

    Uses ``ShufflePartitionsUtil.createSkewPartitionSpecs`` with a target of a byte, so that each task that wrote
    rows becomes a slice. The map output tracker, which has the sizes, cannot be called from Python.
    """
    mappers = int(stage.shuffle().numMappers())
    sizes = np.zeros((max(mappers, 1), len(subpartitions)), dtype=np.int64)
    if not mappers:  # no task has run, so Spark has no statistics of the shuffle
        return sizes
    totals = subpartition_bytes(bridge, stage)
    util = bridge.companion(EXECUTION + "adaptive.ShufflePartitionsUtil")
    for column, index in enumerate(subpartitions):
        slices = option(util.createSkewPartitionSpecs(stage.shuffle().shuffleId(), index, 1, 0.0))
        if slices is None:  # a single task wrote the subpartition
            sizes[0, column] = totals[index]
            continue
        for mapper_slice in items(slices):
            sizes[int(mapper_slice.startMapIndex()), column] = int(mapper_slice.dataSize())
    return sizes


def row_count(statistics: Any) -> int | None:
    """Return the row count of Spark's statistics, None if there is none."""
    count = option(statistics.rowCount())
    return None if count is None else to_int(count)


def to_int(value: Any) -> int:
    """Convert a Scala number, such as a ``BigInt``."""
    return int(value if isinstance(value, int) else value.toString())


def scanned_rows(plan: PhysicalPlan, leaves: Mapping[int, LogicalNode]) -> dict[int, int]:
    """Return the numbers of rows that an executed plan has read from relations, by the keys of `leaves`."""
    return _scan_figures(plan, leaves, "rows")


def filtered_rows(plan: PhysicalPlan, leaves: Mapping[int, LogicalNode]) -> dict[int, int]:
    """Return the numbers of rows that passed the filters directly above relations, except relations read by DuckDB."""
    return _scan_figures(plan, leaves, "passed")


def _scan_figures(plan: PhysicalPlan, leaves: Mapping[int, LogicalNode], figure: str) -> dict[int, int]:
    """Return the sum of a figure over each relation's scans, by the keys of `leaves`; scans without it are skipped."""
    counts: dict[int, int] = {}
    for scan in answers.facts(plan._bridge.helper("ScanMetrics").rows(plan)):
        for number, leaf in leaves.items():
            if scan["columns"] and leaf.has_columns(scan["columns"]) and scan[figure] is not None:
                counts[number] = counts.get(number, 0) + scan[figure]
    return counts
