"""How many records a stream's next batch reads, and by how many tasks. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.pace import Limit, limit_of
from penstock.connectors.scan_parallelism import ROWS_PER_TASK
from penstock.connectors.splits import COARSE, worth_opening
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.pace import RanBatch


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """What bounds the batches of a stream.

    Parameters
    ----------
    interval
        The seconds that a batch may take, None if nobody said it: the pace then bounds nothing.
    most_records
        What the user allows at most, or None.
    parallelism
        The number of tasks if the user set it, or None.
    most_tasks
        The most tasks that the user allows, or None.
    cores
        The cores that are known of.
    records_per_task
        The records that a task should read.
    """

    interval: float | None = None
    most_records: int | None = None
    parallelism: int | None = None
    most_tasks: int | None = None
    cores: int = 1
    records_per_task: int = 16_384


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """The next batch.

    Parameters
    ----------
    lag
        The records that waited when it was decided, as the broker told.
    records
        How many of them it reads.
    tasks
        The number of its tasks.
    reason
        Why so many records, and why so many tasks.
    """

    lag: int
    records: int
    tasks: int
    reason: str


def most_records(ran: Sequence[RanBatch], bounds: BatchBounds) -> Limit | None:
    """Return the most records that the next batch may have, None if nothing bounds it.

    What the user allows bounds what the pace allows, and never the other way round.
    """
    paced = None if bounds.interval is None else limit_of(ran, bounds.interval)
    if bounds.most_records is not None and (paced is None or bounds.most_records <= paced.records):
        return Limit(bounds.most_records, f"maxOffsetsPerTrigger is {bounds.most_records:,}")
    return paced


def decide_batch(lag: int, partitions: int, limit: Limit | None, bounds: BatchBounds) -> BatchDecision:
    """Return what the next batch reads of a backlog.

    Parameters
    ----------
    lag
        The records that wait, at least one.
    partitions
        The partitions of the topics.
    limit
        The most it may have, see `most_records`.
    bounds
        What bounds it.
    """
    if limit is None or lag <= limit.records:
        records, why = lag, f"all {lag:,} records that wait"
    else:
        records, why = limit.records, f"{limit.records:,} of {lag:,} records that wait: {limit.reason}"
    tasks, by = decide_tasks(records, partitions, bounds)
    return BatchDecision(lag, records, tasks, f"{why}; {show_count(tasks, 'task')}: {by}")


def decide_tasks(records: int, partitions: int, bounds: BatchBounds) -> tuple[int, str]:
    """Return by how many tasks some records are read, and why, half a sentence.

    A cluster may have more cores than the machine of its driver, and a topic may have one partition for each of them.
    So tasks may be as many as partitions, in whole rounds of the known cores.
    """
    if bounds.parallelism is not None:
        return bounds.parallelism, "scan.parallelism is set"
    rounds = math.ceil(max(bounds.cores, partitions) / bounds.cores)
    cores = rounds * bounds.cores
    fine = math.ceil(records / bounds.records_per_task)
    coarse = math.ceil(records / (COARSE * bounds.records_per_task))
    by_volume = worth_opening(fine, coarse, cores)
    by_cores = min(cores, max(1, records // ROWS_PER_TASK))
    if by_volume > by_cores:
        number, reason = by_volume, f"at most {math.ceil(records / by_volume):,} records for each"
    elif by_cores < cores:
        number, reason = by_cores, f"each is worth {ROWS_PER_TASK:,} records"
    else:
        of_partitions = f", as there are {show_count(partitions, 'partition')}" if rounds > 1 else ""
        number, reason = by_cores, f"{show_count(rounds, 'round')} of {show_count(bounds.cores, 'core')}{of_partitions}"
    if bounds.most_tasks is not None and number > bounds.most_tasks:
        return bounds.most_tasks, f"scan.infer-parallelism.max is {bounds.most_tasks}"
    return number, reason
