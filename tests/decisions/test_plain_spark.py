"""What Spark alone would have done instead of a decision."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.plain_spark import SparkSettings, coalesced_tasks, file_tasks, spark_alternative
from penstock.decisions.record import DecisionRecord

MIB = 1 << 20
AQE = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1048576b",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "67108864b",
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "5.0",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "268435456b",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": "0b",
    "spark.sql.autoBroadcastJoinThreshold": "10485760b",
    "spark.sql.exchange.reuse": "true",
    "spark.sql.files.maxPartitionBytes": "134217728b",
    "spark.sql.files.openCostInBytes": "4194304b",
    "spark.sql.join.preferSortMergeJoin": "true",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "true",
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "10737418240b",
    "spark.sql.shuffle.partitions": "200",
}
WITHOUT_AQE = AQE | {"spark.sql.adaptive.enabled": "false"}
BROADCAST_OPTION = "spark.sql.autoBroadcastJoinThreshold"


def decision(kind: str, chosen: Any, figures: dict[str, Any] | None = None, **more: Any) -> DecisionRecord:
    values = {"kind": kind, "subject": "1 Join", "chosen": chosen, "reason": "", "figures": figures or {}}
    return DecisionRecord.from_dict(0, values | {"outcome": {}, "at": 0.0} | more)


@pytest.mark.parametrize(
    ("size", "cores", "changes", "tasks"),
    [
        (64 * MIB, 2, {}, 2),
        (1000 * MIB, 2, {}, 17),  # 12 of 200 partitions of 5 MiB fit into 64 MiB
        (100 << 30, 2, {}, 200),
        (8 * MIB, 100, {}, 8),  # at least 1 MiB each
        (0, 2, {}, 1),
        (64 * MIB, 8, {"spark.sql.adaptive.coalescePartitions.parallelismFirst": "false"}, 1),
        (64 * MIB, 2, {"spark.sql.adaptive.coalescePartitions.enabled": "false"}, 200),
        (64 * MIB, 2, {"spark.sql.adaptive.coalescePartitions.initialPartitionNum": "3"}, 3),
        (1000 * MIB, 2, {"spark.sql.adaptive.coalescePartitions.minPartitionNum": "40"}, 40),
    ],
)
def test_tasks_of_a_shuffle(size: int, cores: int, changes: dict[str, str], tasks: int) -> None:
    assert coalesced_tasks(size, SparkSettings(AQE | changes, cores)) == tasks


@pytest.mark.parametrize(
    ("files", "size", "splittable", "cores", "tasks"),
    [
        (1, 221 * MIB, 1, 2, 2),
        (1, 221 * MIB, 0, 2, 1),
        (1, 10 * MIB, 1, 8, 3),
        (1, 1024 * MIB, 1, 2, 8),
        (9, 9, 9, 2, 3),
    ],
)
def test_tasks_of_files(files: int, size: int, splittable: int, cores: int, tasks: int) -> None:
    assert file_tasks(files, size, splittable, SparkSettings(AQE, cores)) == tasks


@pytest.mark.parametrize(
    ("record", "settings", "expected"),
    [
        (
            decision("vertex parallelism", 3, {"bytes shuffled": 64 * MIB}),
            AQE,
            "Spark alone (estimate): 200 shuffle partitions, which AQE coalesces to about 2 tasks if 64.0 MiB are shuffled",
        ),
        (
            decision("vertex parallelism", 3, {"bytes shuffled": 64 * MIB}),
            WITHOUT_AQE,
            "Spark alone: 200 shuffle partitions, each read by a task (spark.sql.shuffle.partitions)",
        ),
        (decision("vertex parallelism", "left to Spark", {"bytes shuffled": 64 * MIB}), AQE, None),
        (decision("vertex parallelism", 3, {"bytes in": 64 * MIB}), AQE, None),
        (decision("vertex parallelism", 3), AQE, None),
        (
            decision("source parallelism", 9, {"files": 1, "file bytes": 221 * MIB, "splittable files": 1}),
            AQE,
            (
                "Spark alone (estimate): 2 tasks, as it divides 1 file of 221.0 MiB among 2 cores, at most 128.0 MiB each "
                "(spark.sql.files.maxPartitionBytes)"
            ),
        ),
        (decision("source parallelism", 9), AQE, None),
        (
            decision("broadcast", "left", {"bytes": 5, "limit": 10}, option=BROADCAST_OPTION),
            AQE,
            "Spark alone: the same broadcast, by the same statistics",
        ),
        (
            decision("broadcast", "left", {"bytes": 5}),
            AQE,
            "Spark alone: the same broadcast, as the join hint asks for it",
        ),
        (
            decision("broadcast", "right", {"bytes": 5, "rows": 1}, option=BROADCAST_OPTION),
            AQE,
            (
                "Spark alone (estimate): it shuffles both sides, unless its statistics allow a broadcast when it plans; AQE turns "
                "the join into a broadcast join only after it has measured a shuffled side below 10.0 MiB"
            ),
        ),
        (
            decision("broadcast", "right", {"bytes": 5, "rows": 1}, option=BROADCAST_OPTION),
            WITHOUT_AQE,
            "Spark alone (estimate): it shuffles both sides, unless its statistics allow a broadcast when it plans",
        ),
        (decision("broadcast", "not the left side", option=BROADCAST_OPTION), AQE, None),
        (decision("broadcast", "right", option=BROADCAST_OPTION, outcome={"instead": "shuffled"}), AQE, None),
        (
            decision("join algorithm", "shuffled hash join, build side left"),
            AQE,
            "Spark alone: a sort-merge join (spark.sql.join.preferSortMergeJoin)",
        ),
        (
            decision("skew", "left side, 1 of 9 partitions split", {"largest": 300 * MIB, "median": MIB}),
            AQE,
            "Spark alone (estimate): AQE splits it, too, unless that adds a shuffle, as 300.0 MiB is above 256.0 MiB",
        ),
        (
            decision("skew", "left side, 1 of 9 partitions split", {"largest": 100 * MIB, "median": MIB}),
            AQE,
            "Spark alone (estimate): AQE does not split it, as 100.0 MiB is not above 256.0 MiB",
        ),
        (
            decision("skew", "1 of 9 partitions merged in chunks", {"largest": 100 * MIB}),
            AQE,
            "Spark alone: no split, as AQE splits only partitions of joins",
        ),
        (
            decision("dynamic filter", "by the left side"),
            AQE,
            (
                "Spark alone (estimate): no filter by these keys, unless they are partition columns or the filtered side scans "
                "more than 10.0 GiB"
            ),
        ),
        (decision("sharing", "not inferred"), AQE, None),
        (decision("cancel", "cancelled"), AQE, None),
    ],
)
def test_alternative_of_a_decision(record: DecisionRecord, settings: dict[str, str], expected: str | None) -> None:
    alternative = spark_alternative(record, SparkSettings(settings, cores=2))
    assert (None if alternative is None else str(alternative)) == expected


def test_no_alternative_without_settings() -> None:
    assert spark_alternative(decision("join order", "1, 2"), None) is None
    assert spark_alternative(decision("join order", "1, 2"), SparkSettings(AQE, 2)) is not None
