"""Adaptive exchanges on real Spark: in a session with eight slots, and in a session with two executor processes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F

import penstock
from penstock.config import Configuration
from penstock.errors import JobError, NoBarrierError, RebalanceError, SourceError
from penstock.hints.plan_hints import RequestedExchange
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.run import barrier
from penstock.spark.run.barrier import _RERUN_SETTINGS, task_slots
from tests.conftest import OFF
from tests.scheduler.test_cluster import cluster
from tests.support.paths import TESTS
from tests.support.stages import stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


JOB = TESTS / "jobs" / "rebalance.py"
THOROUGH = (
    "slow reader",
    "rebalance, more readers than writers",
    "rescale 2 to 6",
    "job",
    "behind an aggregate",
    "compared consumers",
)
FAULTS = ("exit", "driver out of reach", "many splits")
SLOW = (
    "rebalance, plain",
    "rebalance, empty partitions",
    "rebalance, all empty",
    "rebalance, fewer rows than readers",
    "rebalance, one reader",
    "rebalance, fewer readers than writers",
    "rebalance, behind a shuffle",
    "rebalance, more partitions than slots",
    "rescale 6 to 2",
    "rescale 3 to 3",
    "early end",
    "more and fewer",
    "after",
    "exception",
    "always wrong",
    "stream",
    "pandas",
    "values",
    "rests",
    "ends well",
)
CLUSTER = ("rebalance, plain", "rescale 2 to 4", "values", "slow reader", "exception", "exit", "executor", "lost block")


def run(master: Any, folder: Path, cases: Any) -> Any:
    done = subprocess.run(
        [sys.executable, JOB, master, str(folder), *cases], capture_output=True, text=True, check=False, timeout=900
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[0].removeprefix("RESULT "))


@pytest.fixture(scope="module")
def thorough(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run("local[8]", tmp_path_factory.mktemp("thorough"), THOROUGH)


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run("local[8]", tmp_path_factory.mktemp("faults"), FAULTS)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run("local[8]", tmp_path_factory.mktemp("slow"), SLOW)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run("local-cluster[2,2,1024]", tmp_path_factory.mktemp("cluster"), CLUSTER)


@pytest.mark.thorough
@pytest.mark.parametrize("name", THOROUGH)
def test_exact(thorough: Any, name: str) -> None:
    assert thorough[name]["same"], thorough[name]


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAULTS)
def test_exact_after_faults(faults: Any, name: str) -> None:
    assert faults[name]["same"], faults[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_exact_in_all_cases(slow: Any, name: str) -> None:
    assert slow[name]["same"], slow[name]


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("name", CLUSTER)
def test_exact_on_two_executors(clustered: Any, name: str) -> None:
    assert clustered[name]["same"], clustered[name]


@pytest.mark.slow
@pytest.mark.cluster
def test_exact_on_a_standalone_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path, cores=2) as (master, _):
        results = run(
            master, tmp_path, ("rebalance, plain", "rescale 2 to 4", "slow reader", "exit", "executor", "lost block")
        )
    assert [(name, result) for name, result in results.items() if not result["same"]] == []


@pytest.mark.parametrize(
    "key",
    [
        "spark.network.crypto.enabled",
        "spark.io.encryption.enabled",
        "spark.authenticate.enableSaslEncryption",
        "spark.ssl.rpc.enabled",
        "spark.dynamicAllocation.enabled",
    ],
)
def test_sessions_that_cannot_run_a_barrier_stage(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The setting is simulated because it cannot be changed in the shared session."""
    monkeypatch.setattr(barrier, "read_settings", lambda *_: {key: "true"})
    with pytest.raises(NoBarrierError, match=key):
        task_slots(Bridge(spark))
    assert sorted(penstock.rebalance(spark.range(3), adaptive=True).dataframe().collect()) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("key", _RERUN_SETTINGS)
def test_clusters_that_would_not_detect_a_lost_block(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, key: Any
) -> None:
    """The cluster is simulated; tests/jobs/rebalance.py loses blocks on a real cluster."""
    monkeypatch.setattr(spark.sparkContext, "master", "spark://somewhere:7077")
    spark.conf.set(key, "false")
    try:
        with pytest.raises(NoBarrierError, match=f"{key} is off or unknown"):
            task_slots(Bridge(spark))
    finally:
        spark.conf.unset(key)


def test_executors_are_awaited_only_once(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that requests more consumers than there will ever be must not wait at every query."""
    monkeypatch.setattr(spark.sparkContext, "master", "spark://somewhere:7077")
    monkeypatch.setattr(barrier, "_require_rerun_detection", lambda _: None)
    monkeypatch.setattr(barrier, "_STARTUP_SECONDS", 0.6)
    monkeypatch.setattr(barrier, "_FIRST_REQUESTS", {})
    durations = []
    for _ in range(2):
        started = time.monotonic()
        assert task_slots(Bridge(spark), 100) == 2
        durations.append(time.monotonic() - started)
    assert durations[0] >= 0.6
    assert durations[1] < 0.3


@pytest.mark.thorough
def test_the_slow_consumer_gets_less(thorough: Any) -> None:
    assert thorough["slow reader"]["slow"] * 4 < thorough["slow reader"]["fast"]


@pytest.mark.thorough
def test_the_requested_number_of_consumers(thorough: Any) -> None:
    assert thorough["rebalance, more readers than writers"]["readers"] == 6
    assert thorough["rescale 2 to 6"]["readers"] == 6


@pytest.mark.thorough
def test_files_with_many_splits_are_read_by_as_many_tasks_as_can_run(faults: Any) -> None:
    assert faults["many splits"]["splits"] > 8
    assert faults["many splits"]["vertices"] == [8]
    assert faults["many splits"]["readers"] == 8
    assert faults["many splits"]["decided rows"] == 300_000  # only of the second job


@pytest.mark.thorough
def test_the_output_of_an_aggregate_is_not_shuffled_again(thorough: Any) -> None:
    assert thorough["behind an aggregate"]["vertices"] == [2, 2]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "expected"), [("default", 4), ("option", 3), ("argument", 2)])
def test_running_writers_compare_as_many_consumers_as_set(thorough: Any, name: str, expected: int) -> None:
    assert thorough["compared consumers"][name] == [expected], thorough["compared consumers"]


@pytest.mark.thorough
def test_a_job_records_the_rows_of_each_consumer(thorough: Any) -> None:
    assert "REBALANCE(least loaded of 4)" in thorough["job"]["edges"]
    decisions = thorough["job"]["decisions"]
    assert sum(decision["figures"]["rows"] for decision in decisions) == 20_000
    assert {"bytes", "largest_queue", "waited", "blocked", "rows to 0"} <= decisions[0]["figures"].keys()


@pytest.mark.thorough
def test_a_crashed_function_runs_again_before_a_shuffle_a_result_and_a_sink(faults: Any) -> None:
    assert faults["exit"]["crashes"] == 3  # before a shuffle, at the end of a query, and before a sink


# The `adaptive` argument of two exchanges, and whether each is adaptive, without and with the option.
PRECEDENCE = [
    (option, first, second, option if first is None else first, option if second is None else second)
    for option in (False, True)
    for first in (None, False, True)
    for second in (None, False, True)
]


@pytest.mark.parametrize(("option", "first", "second", "first_is", "second_is"), PRECEDENCE)
def test_the_call_wins_over_the_option(option: Any, first: Any, second: Any, first_is: Any, second_is: Any) -> None:
    config = Configuration.load({"taskmanager.network.adaptive-partitioner.enabled": option})
    assert RequestedExchange(first).resolve_options(config, None)[0] == first_is
    assert RequestedExchange(second, pointwise=True).resolve_options(config, None)[0] == second_is


@pytest.mark.parametrize(("channels", "expected"), [(None, True), (2, True), (1, False)])
def test_a_single_channel_is_not_adaptive(channels: int | None, expected: bool) -> None:
    assert RequestedExchange(True).resolve_options(Configuration.load({}), channels)[0] is expected


@pytest.mark.parametrize("option", [False, True])
def test_a_rebalance_to_a_single_consumer_is_an_ordinary_exchange(spark: SparkSession, option: bool) -> None:
    adaptive = None if option else True
    env = penstock.Environment(
        spark, config={"taskmanager.network.adaptive-partitioner.enabled": option}, progress=False
    )
    df = penstock.rebalance(spark.range(0, 100, 1, 2), 1, adaptive=adaptive).map_in_arrow(
        lambda batches: batches, "id bigint"
    )
    assert sorted(row.id for row in env.collect(df)) == list(range(100))
    assert {str(edge.partitioner) for edge in env.last_job.graphs.initial.edges} & {"REBALANCE"}
    assert "rebalance" not in {decision.kind.value for decision in env.last_job.decisions}


def upstream_tasks(batches: Any) -> Iterator[Any]:
    tasks = {row // 500 for batch in batches for row in batch.column(0).to_pylist()}
    yield pa.RecordBatch.from_pydict(
        {"n": pa.array([len(tasks)], pa.int64()), "first": pa.array([min(tasks, default=-1)], pa.int64())}
    )


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
@pytest.mark.parametrize(("consumers", "each"), [(2, 2), (3, 2), (4, 1), (8, 1), (6, 1), (1, 4)])
def test_a_rescale_reads_neighbours_only(spark: SparkSession, consumers: int, each: int, threshold: str) -> None:
    """Each of four tasks writes 500 rows; a consumer reads a few neighbouring tasks."""
    config = {"execution.verify": True, "execution.batch.adaptive.whole-query-threshold": threshold}
    env = penstock.Environment(spark, config=config, progress=False)
    df = penstock.rescale(spark.range(0, 2000, 1, 4), consumers).map_in_arrow(upstream_tasks, "n bigint, first bigint")
    consumed = [row for row in env.collect(df) if row.n]
    assert len(consumed) == consumers
    assert max(row.n for row in consumed) == each
    rows = env.collect(penstock.rescale(spark.range(0, 2000, 1, 4), consumers).dataframe())
    assert sorted(row.id for row in rows) == list(range(2000))


@pytest.mark.parametrize(
    ("rows", "writers", "consumers", "expected"),
    [
        (1200, 2, 3, (200, 400, 600)),  # two readers share the three subpartitions of the first task
        (1200, 4, 6, (150, 150, 300, 150, 150, 300)),
        (1200, 3, 2, (400, 800)),
        (1200, 6, 4, (200, 400, 200, 400)),
    ],
)
def test_a_rescale_divides_tasks_as_flink_does(
    spark: SparkSession, rows: int, writers: int, consumers: int, expected: tuple[int, ...]
) -> None:
    """The rows that each task has read show which upstream tasks it reads."""
    env = penstock.Environment(spark, config=OFF, progress=False)
    df = penstock.rescale(spark.range(0, rows, 1, writers), consumers).map_in_arrow(
        upstream_tasks, "n bigint, first bigint"
    )
    assert len(env.collect(df)) == consumers
    (read,) = [stage.shuffle_read_per_task for stage in stages(spark, env.last_job) if stage.shuffle_read]
    assert read == expected


@pytest.mark.parametrize(("option", "argument", "expected"), [(None, None, 4), (6, None, 6), (6, 2, 2), (None, 3, 3)])
def test_the_traverse_size_of_the_call_wins(option: int | None, argument: int | None, expected: int) -> None:
    options = {} if option is None else {"taskmanager.network.adaptive-partitioner.max-traverse-size": option}
    assert RequestedExchange(True, argument).resolve_options(Configuration.load(options), 2)[1] == expected


OPTION = "taskmanager.network.adaptive-partitioner"


@pytest.mark.parametrize(
    ("of_spark", "of_the_job", "adaptive", "argument", "expected"),
    [
        ({}, {"max-traverse-size": 2}, True, None, "REBALANCE(least loaded of 2)"),
        ({}, {"max-traverse-size": 2}, True, 3, "REBALANCE(least loaded of 3)"),
        ({}, {"enabled": False}, True, None, "REBALANCE(least loaded of 4)"),
        ({"enabled": True}, {}, None, None, "REBALANCE(least loaded of 4)"),
        ({"enabled": True}, {"max-traverse-size": 2}, None, None, "REBALANCE(least loaded of 2)"),
        ({"enabled": True}, {"enabled": False}, None, None, "REBALANCE"),
        ({"enabled": True, "max-traverse-size": 2}, {}, None, None, "REBALANCE(least loaded of 2)"),
    ],
)
def test_the_options_of_a_job_win_over_those_of_the_session(
    spark: SparkSession, of_spark: Any, of_the_job: Any, adaptive: bool | None, argument: int | None, expected: str
) -> None:
    """The exchange is created before the job's options are known."""
    for key, value in of_spark.items():
        spark.conf.set(f"spark.penstock.{OPTION}.{key}", str(value))
    try:
        rebalanced = penstock.rebalance(spark.range(0, 1000, 1, 2), 2, adaptive, argument)
        df = rebalanced.map_in_arrow(lambda batches: batches, "id bigint").withColumn("twice", F.col("id") * 2)
        config = OFF | {f"{OPTION}.{key}": value for key, value in of_the_job.items()}
        env = penstock.Environment(spark, config=config, progress=False)
        assert sorted(row.id for row in env.collect(df)) == list(range(1000))
        assert sorted(row.id for row in df.collect()) == list(range(1000))
    finally:
        for key in of_spark:
            spark.conf.unset(f"spark.penstock.{OPTION}.{key}")
    assert expected in {str(edge.partitioner) for edge in env.last_job.graphs.manager.graph.edges}


@pytest.mark.parametrize(
    ("above", "steps"),
    [
        (lambda df: df, "Source: range -> MapInArrow -> Sink: collect"),
        (lambda df: df.where("id % 3 = 0"), None),
        (lambda df: df.select("twice"), None),
        (lambda df: df.selectExpr("twice + 1 as more", "id"), None),
        (lambda df: df.groupBy("twice").count(), None),
    ],
    ids=["nothing", "a filter", "a column", "new columns", "an aggregate"],
)
def test_a_boundary_that_is_left_out_adds_no_operator(
    spark: SparkSession, make_env: Callable[..., Environment], above: Any, steps: str | None
) -> None:
    def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"id": batch["id"], "twice": batch["id"]})

    env = make_env()
    rebalanced = penstock.rebalance(spark.range(0, 1000, 1, 2), 2, adaptive=True)
    df = above(rebalanced.map_in_arrow(twice, "id bigint, twice bigint"))
    assert sorted(env.collect(df)) == sorted(df.collect())
    if steps is not None:
        assert [snapshot.vertex.name for snapshot in env.last_job.vertices] == [steps]


@pytest.mark.thorough
def test_the_job_s_idle_timeout_applies(spark: SparkSession) -> None:
    def sleeps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(2 if TaskContext.get().partitionId() == 0 else 0)  # type: ignore[union-attr]
            yield batch

    df = penstock.rebalance(spark.range(0, 1000, 1, 2), 2, adaptive=True).map_in_arrow(sleeps, "id bigint")
    env = penstock.Environment(spark, config=OFF | {f"{OPTION}.idle-timeout": "1 s"}, progress=False)
    with pytest.raises(JobError, match="has waited 1 s for consumers: 0"):
        env.collect(df)


@pytest.mark.parametrize("how", ["rebalance", "rescale"])
def test_the_option_alone_makes_a_call_adaptive(
    spark: SparkSession, make_env: Callable[..., Environment], how: str
) -> None:
    env = make_env(**{"taskmanager.network.adaptive__partitioner.enabled": True})
    rebalanced = getattr(penstock, how)(spark.range(0, 100, 1, 2), 2)
    df = rebalanced.map_in_arrow(lambda batches: batches, "id bigint")
    assert sorted(row.id for row in env.collect(df)) == list(range(100))
    assert f"{how.upper()}(least loaded of 4)" in {str(edge.partitioner) for edge in env.last_job.graphs.initial.edges}


@pytest.mark.parametrize("option", [False, True])
@pytest.mark.parametrize(("adaptive", "argument", "expected"), [(None, 3, True), (False, 3, False), (True, 3, True)])
def test_a_traverse_size_alone_switches_an_exchange_on(
    option: bool, adaptive: bool | None, argument: int, expected: bool
) -> None:
    config = Configuration.load({"taskmanager.network.adaptive-partitioner.enabled": option})
    assert RequestedExchange(adaptive, argument).resolve_options(config, 2) == (expected, argument)


def test_a_job_runs_an_exchange_that_only_its_traverse_size_switches_on(
    spark: SparkSession, make_env: Callable[..., Environment]
) -> None:
    env = make_env()
    df = penstock.rebalance(spark.range(0, 100, 1, 2), 2, max_traverse_size=3).map_in_arrow(
        lambda batches: batches, "id bigint"
    )
    assert sorted(row.id for row in env.collect(df)) == list(range(100))
    assert "REBALANCE(least loaded of 3)" in {str(edge.partitioner) for edge in env.last_job.graphs.initial.edges}


@pytest.mark.parametrize("bad", [1, 0, -1, True, "4"])
def test_bad_traverse_sizes(spark: SparkSession, bad: Any) -> None:
    with pytest.raises(RebalanceError, match="max_traverse_size"):
        penstock.rebalance(spark.range(3), max_traverse_size=bad)


@pytest.mark.parametrize("bad", [0, -1, "many", 1.5])
def test_bad_parallelisms(spark: SparkSession, bad: str | float) -> None:
    with pytest.raises(SourceError, match="parallelism"):
        penstock.rescale(spark.range(3), parallelism=bad)


def test_nested_columns_in_pandas_are_rejected(spark: SparkSession) -> None:
    df = spark.range(3).select(F.array("id").alias("list"))
    with pytest.raises(RebalanceError, match="several forms"):
        penstock.rebalance(df, adaptive=True).map_in_pandas(lambda frames: frames, df.schema)


@pytest.mark.parametrize("adaptive", [None, False])
def test_not_adaptive_is_an_ordinary_exchange(
    make_env: Callable[..., Environment], spark: SparkSession, adaptive: bool | None
) -> None:
    env = make_env()
    rebalanced = penstock.rebalance(spark.range(0, 1000, 1, 1), 3, adaptive=adaptive)
    assert sorted(row.id for row in rebalanced.dataframe().collect()) == list(range(1000))
    out = rebalanced.map_in_arrow(lambda batches: batches, "id long")
    assert sorted(row.id for row in env.collect(out)) == list(range(1000))
    assert [str(v.vertex.inputs[0].stream_edge.partitioner) for v in env.last_job.vertices if v.vertex.inputs] == [
        "REBALANCE"
    ]
    assert env.last_job.vertices[-1].tasks == 3
