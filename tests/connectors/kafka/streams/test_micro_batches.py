"""The next batch of a stream: its number of records and tasks."""

from __future__ import annotations

import pytest

from penstock.connectors.kafka.streams.micro_batches import BatchBounds, decide_batch, max_records
from penstock.connectors.kafka.streams.pace import MeasuredBatch

PACED = BatchBounds(interval=10, cores=2)
MEASURED = [MeasuredBatch(20_000, 10.0)]
SIZES: dict[str, tuple[int, BatchBounds, int, str]] = {
    "no limit": (900_000, BatchBounds(), 900_000, "all 900,000 records that wait"),
    "all records fit": (17_000, PACED, 17_000, "all 17,000 records that wait"),
    "limited by the pace": (
        90_000,
        PACED,
        20_000 * 9 // 10,
        "18,000 of 90,000 records that wait: as many as fit in 10 s at 2,000 records a second",
    ),
    "the user's limit is lower": (
        90_000,
        BatchBounds(interval=10, max_records=700),
        700,
        "700 of 90,000 records that wait: maxOffsetsPerTrigger is 700",
    ),
    "the user's limit is higher": (
        90_000,
        BatchBounds(interval=10, max_records=70_000),
        18_000,
        "18,000 of 90,000 records that wait: as many as fit in 10 s at 2,000 records a second",
    ),
    "only the user's limit": (
        90_000,
        BatchBounds(max_records=70_000),
        70_000,
        "70,000 of 90,000 records that wait: maxOffsetsPerTrigger is 70,000",
    ),
}


@pytest.mark.parametrize("case", SIZES)
def test_the_number_of_records_follows_from_pace_and_limits(case: str) -> None:
    lag, bounds, records, reason = SIZES[case]
    decision = decide_batch(lag, 1, max_records(MEASURED, bounds), bounds)
    assert (decision.lag, decision.records) == (lag, records)
    assert decision.reason.startswith(f"{reason}; ")


TASKS: dict[str, tuple[int, int, BatchBounds, int, str]] = {
    "set by the user": (5, 9, BatchBounds(parallelism=7), 7, "7 tasks: scan.parallelism is set"),
    "few records": (999, 9, BatchBounds(cores=4), 1, "1 task: a task for each 1,000 records"),
    "some records": (3_000, 9, BatchBounds(cores=4), 3, "3 tasks: a task for each 1,000 records"),
    "all cores": (30_000, 1, BatchBounds(cores=4), 4, "4 tasks: 1 round of 4 cores"),
    "more partitions than cores": (
        30_000,
        9,
        BatchBounds(cores=4),
        12,
        "12 tasks: 3 rounds of 4 cores, as there are 9 partitions",
    ),
    "many records": (100_000, 1, BatchBounds(cores=4), 7, "7 tasks: at most 14,286 records for each"),
    "more tasks than one round": (
        400_000,
        1,
        BatchBounds(cores=4),
        16,
        "16 tasks: at most 25,000 records for each",
    ),
    "very many": (10_000_000, 1, BatchBounds(cores=4), 153, "153 tasks: at most 65,360 records for each"),
    "limited by the user": (
        10_000_000,
        1,
        BatchBounds(cores=4, max_tasks=40),
        40,
        "40 tasks: scan.infer-parallelism.max is 40",
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_the_number_of_tasks_follows_from_records_and_cores(case: str) -> None:
    lag, partitions, bounds, tasks, reason = TASKS[case]
    decision = decide_batch(lag, partitions, None, bounds)
    assert (decision.tasks, decision.reason.partition("; ")[2]) == (tasks, reason)
