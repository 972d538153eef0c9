"""The next batch of a stream: tables of its size and of its tasks."""

from __future__ import annotations

import pytest

from penstock.connectors.micro_batches import BatchBounds, decide_batch, most_records
from penstock.connectors.pace import RanBatch

PACED = BatchBounds(interval=10, cores=2)
RAN = [RanBatch(20_000, 10.0)]
SIZES: dict[str, tuple[int, BatchBounds, int, str]] = {
    "nobody bounds it": (900_000, BatchBounds(), 900_000, "all 900,000 records that wait"),
    "all fits": (17_000, PACED, 17_000, "all 17,000 records that wait"),
    "the pace bounds it": (
        90_000,
        PACED,
        20_000 * 9 // 10,
        "18,000 of 90,000 records that wait: as many as fit in 10 s at 2,000 records a second",
    ),
    "the user's bound is lower": (
        90_000,
        BatchBounds(interval=10, most_records=700),
        700,
        "700 of 90,000 records that wait: maxOffsetsPerTrigger is 700",
    ),
    "the user's bound is higher": (
        90_000,
        BatchBounds(interval=10, most_records=70_000),
        18_000,
        "18,000 of 90,000 records that wait: as many as fit in 10 s at 2,000 records a second",
    ),
    "only the user bounds it": (
        90_000,
        BatchBounds(most_records=70_000),
        70_000,
        "70,000 of 90,000 records that wait: maxOffsetsPerTrigger is 70,000",
    ),
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes(case: str) -> None:
    lag, bounds, records, reason = SIZES[case]
    found = decide_batch(lag, 1, most_records(RAN, bounds), bounds)
    assert (found.lag, found.records) == (lag, records)
    assert found.reason.startswith(f"{reason}; ")


TASKS: dict[str, tuple[int, int, BatchBounds, int, str]] = {
    "the user sets it": (5, 9, BatchBounds(parallelism=7), 7, "7 tasks: scan.parallelism is set"),
    "few records": (999, 9, BatchBounds(cores=4), 1, "1 task: each is worth 1,000 records"),
    "some records": (3_000, 9, BatchBounds(cores=4), 3, "3 tasks: each is worth 1,000 records"),
    "all cores": (30_000, 1, BatchBounds(cores=4), 4, "4 tasks: 1 round of 4 cores"),
    "more partitions than cores": (
        30_000,
        9,
        BatchBounds(cores=4),
        12,
        "12 tasks: 3 rounds of 4 cores, as there are 9 partitions",
    ),
    "many records": (100_000, 1, BatchBounds(cores=4), 7, "7 tasks: at most 14,286 records for each"),
    "more than the cores are worth": (
        400_000,
        1,
        BatchBounds(cores=4),
        16,
        "16 tasks: at most 25,000 records for each",
    ),
    "very many": (10_000_000, 1, BatchBounds(cores=4), 153, "153 tasks: at most 65,360 records for each"),
    "the user bounds it": (
        10_000_000,
        1,
        BatchBounds(cores=4, most_tasks=40),
        40,
        "40 tasks: scan.infer-parallelism.max is 40",
    ),
}


@pytest.mark.parametrize("case", TASKS)
def test_tasks(case: str) -> None:
    lag, partitions, bounds, tasks, reason = TASKS[case]
    found = decide_batch(lag, partitions, None, bounds)
    assert (found.tasks, found.reason.partition("; ")[2]) == (tasks, reason)
