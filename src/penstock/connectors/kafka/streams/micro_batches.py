"""The number of records and tasks of a stream's next batch. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.connectors.core.scan_parallelism import ROWS_PER_TASK
from penstock.connectors.core.splits import COARSE_FACTOR, choose_split_count
from penstock.connectors.kafka.streams.pace import Limit, record_limit

if TYPE_CHECKING:
    from penstock.connectors.kafka.streams.pace import MeasuredBatch


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The bounds on the batches of a stream; bounds that the user has not set are None.

    `interval` is how many seconds a batch may take; if None, the measured pace (records per second) has no effect.
    `cores` are those of the driver, and `records_per_task` is the target size of a task; both are always set.
    """

    interval: float | None = None
    max_records: int | None = None
    parallelism: int | None = None
    max_tasks: int | None = None
    cores: int = 1
    records_per_task: int = 16_384


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The decision about the records and tasks of the next batch, with the reasons for both numbers.

    `lag` is the backlog in records at the time of the decision.
    """

    lag: int
    records: int
    tasks: int
    reason: str


def max_records(batches: Sequence[MeasuredBatch], bounds: BatchBounds) -> Limit | None:
    """Return the maximum records of the next batch; None if the batch is unlimited.

    This is the smaller of the user's maximum and the limit by the measured pace of `batches`.
    """
    paced = None if bounds.interval is None else record_limit(batches, bounds.interval)
    if bounds.max_records is not None and (paced is None or bounds.max_records <= paced.records):
        return Limit(bounds.max_records, f"maxOffsetsPerTrigger is {bounds.max_records:,}")
    return paced


def decide_batch(lag: int, partitions: int, limit: Limit | None, bounds: BatchBounds) -> BatchDecision:
    """Decide the records and tasks of the next batch; `lag` is the total backlog of the partitions, at least 1."""
    if limit is None or lag <= limit.records:
        records, records_reason = lag, f"all {lag:,} records that wait"
    else:
        records, records_reason = limit.records, f"{limit.records:,} of {lag:,} records that wait: {limit.reason}"
    tasks, tasks_reason = decide_tasks(records, partitions, bounds)
    return BatchDecision(lag, records, tasks, f"{records_reason}; {show_count(tasks, 'task')}: {tasks_reason}")


def decide_tasks(records: int, partitions: int, bounds: BatchBounds) -> tuple[int, str]:
    """Return the number of tasks that read a batch, and the reason, a clause.

    The cluster may have more cores than the driver; their number is unknown here. Topics often have a partition per
    core, so the assumed number of cores is the number of partitions, rounded up to a multiple of the driver's cores.
    """
    if bounds.parallelism is not None:
        return bounds.parallelism, "scan.parallelism is set"
    rounds = math.ceil(max(bounds.cores, partitions) / bounds.cores)
    cores = rounds * bounds.cores
    fine = math.ceil(records / bounds.records_per_task)
    coarse = math.ceil(records / (COARSE_FACTOR * bounds.records_per_task))
    by_volume, _ = choose_split_count(fine, coarse, cores)
    by_cores = min(cores, max(1, records // ROWS_PER_TASK))
    if by_volume > by_cores:
        number, reason = by_volume, f"at most {math.ceil(records / by_volume):,} records for each"
    elif by_cores < cores:
        number, reason = by_cores, f"a task for each {ROWS_PER_TASK:,} records"
    else:
        number, reason = by_cores, f"{show_count(rounds, 'round')} of {show_count(bounds.cores, 'core')}"
        reason += f", as there are {show_count(partitions, 'partition')}" if rounds > 1 else ""
    if bounds.max_tasks is not None and number > bounds.max_tasks:
        return bounds.max_tasks, f"scan.infer-parallelism.max is {bounds.max_tasks}"
    return number, reason
