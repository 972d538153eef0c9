"""Exchanges whose consumers pull rows in chunks, on real Spark with more consumers than slots."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import Accumulator, TaskContext
from pyspark.accumulators import _accumulatorRegistry
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from penstock.errors import RebalanceError
from penstock.rebalance.operator import release_with_owner, report_accumulator
from penstock.rebalance.pull_task import PullTask
from tests.conftest import OFF
from tests.support.equality import assert_same_rows
from tests.support.paths import TESTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ON = OFF | {"taskmanager.network.adaptive-partitioner.enabled": True}
CONSUMERS = 6
WHERE = "id long, reader int, batch int"


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return each row with its consumer and the rows of its batch."""
    index = TaskContext.get().partitionId()  # type: ignore[union-attr]
    for batch in batches:
        rows = batch.num_rows
        columns = {"id": batch.column("id"), "reader": pa.array([index] * rows, pa.int32())}
        yield pa.record_batch(columns | {"batch": pa.array([rows] * rows, pa.int32())})


def where_in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame[["id"]].assign(reader=0, batch=len(frame))


@pytest.fixture
def env(spark: SparkSession) -> Environment:
    return Environment(spark, config=OFF, progress=False)


def reports(env: Environment) -> list[Any]:
    assert env.last_job is not None
    (snapshot,) = [snapshot for snapshot in env.last_job.vertices if "Re" in snapshot.vertex.name]
    decisions = env.last_job.decisions.of(snapshot.vertex.node_ids)
    return [decision for decision in decisions if "rows" in decision.figures]


def edges(env: Environment) -> set[str]:
    assert env.last_job is not None
    return {str(edge.partitioner) for edge in env.last_job.graphs.manager.graph.edges}


PULLED = "REBALANCE(to the next free task)"


@pytest.mark.parametrize("rows", [0, 1, 20_000])
@pytest.mark.parametrize("is_pandas", [False, True])
def test_each_row_once(spark: SparkSession, env: Environment, rows: int, is_pandas: bool) -> None:
    rebalanced = penstock.rebalance(spark.range(0, rows, 1, 3), CONSUMERS, adaptive=True)
    df = rebalanced.map_in_pandas(where_in_pandas, WHERE) if is_pandas else rebalanced.map_in_arrow(where, WHERE)
    assert sorted(row["id"] for row in env.collect(df)) == list(range(rows))
    assert PULLED in edges(env)
    assert sorted(row["id"] for row in df.collect()) == list(range(rows))  # plain Spark distributes them evenly


@pytest.mark.thorough
def test_a_job_records_the_rows_of_each_consumer(spark: SparkSession, env: Environment) -> None:
    df = penstock.rebalance(spark.range(0, 20_000, 1, 3), CONSUMERS, adaptive=True).map_in_arrow(where, WHERE)
    rows = env.collect(df)
    consumed = [sum(row["reader"] == index for row in rows) for index in range(CONSUMERS)]
    assert [report.figures["rows"] for report in reports(env)] == consumed
    assert env.last_job is not None
    (vertex,) = [snapshot for snapshot in env.last_job.vertices if "Rebalance" in snapshot.vertex.name]
    assert vertex.tasks == CONSUMERS


def test_the_slow_consumer_gets_less(spark: SparkSession, env: Environment) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        is_slow = TaskContext.get().partitionId() == 0  # type: ignore[union-attr]
        for batch in batches:
            time.sleep((2e-3 if is_slow else 5e-5) * batch.num_rows)
            yield from where(iter([batch]))

    spread = penstock.rebalance(spark.range(0, 20_000, 1, 3), CONSUMERS, adaptive=True)
    rows = env.collect(spread.map_in_arrow(slowly, WHERE))
    assert sorted(row["id"] for row in rows) == list(range(20_000))
    slow = sum(row["reader"] == 0 for row in rows)
    assert slow < 20_000 / 10  # two run at a time, and the slow consumer needs forty times as long


VALUES = [
    (
        1,
        "a" * (1 << 16),
        decimal.Decimal("1.50"),
        dt.datetime(2024, 3, 31, 2, 30),
        dt.datetime(1900, 1, 1),
        dt.date(1582, 10, 4),
        [1, None],
        {"k": 1},
        (1, "x"),
        b"\x00",
        float("nan"),
        dt.timedelta(days=-1, microseconds=1),
    ),
    (2, *[None] * 11),
    (
        3,
        "",
        decimal.Decimal("-99.99"),
        dt.datetime(1969, 12, 31),
        dt.datetime(9999, 1, 1),
        dt.date(1, 1, 1),
        [],
        {},
        (None, None),
        b"",
        -0.0,
        dt.timedelta(0),
    ),
]
COLUMNS = (
    "id long, s string, d decimal(5,2), t timestamp, n timestamp_ntz, day date, a array<int>, m map<string, int>, "
    "r struct<x: int, y: string>, b binary, f double, i interval day to second"
)


@pytest.mark.thorough
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
@pytest.mark.parametrize("large", ["false", "true"])
def test_values(spark: SparkSession, env: Environment, zone: str, large: str) -> None:
    """The function gets the same as in plain Spark: types, time zones, and the limit of a batch."""

    def as_text(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert batch.num_rows <= 2
            for row in range(batch.num_rows):
                text = [f"{field.name} {field.type} {batch.column(i)[row]}" for i, field in enumerate(batch.schema)]
                yield pa.record_batch({"text": ["; ".join(text)]})

    settings = {
        "spark.sql.session.timeZone": zone,
        "spark.sql.execution.arrow.useLargeVarTypes": large,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        rows = spark.createDataFrame(VALUES * 3, COLUMNS)
        texts = penstock.rebalance(rows, CONSUMERS, adaptive=True).map_in_arrow(as_text, "text string")
        assert_same_rows(env.collect(texts), rows.mapInArrow(as_text, "text string").collect())
    finally:
        for key in settings:
            spark.conf.unset(key)


@pytest.mark.thorough
@pytest.mark.parametrize("is_pandas", [False, True])
def test_an_error_of_the_function(spark: SparkSession, env: Environment, is_pandas: bool) -> None:
    def fails(batches: Iterator[Any]) -> Iterator[Any]:
        for _ in batches:
            raise ValueError("the model is broken")
        yield from ()

    rebalanced = penstock.rebalance(spark.range(0, 100, 1, 3), CONSUMERS, adaptive=True)
    df = rebalanced.map_in_pandas(fails, "id long") if is_pandas else rebalanced.map_in_arrow(fails, "id long")
    with pytest.raises(Exception, match="the model is broken"):
        env.collect(df)
    with pytest.raises(PythonException, match="the model is broken"):
        df.collect()


@pytest.mark.thorough
def test_a_function_that_ends_early(spark: SparkSession, env: Environment) -> None:
    def first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            return

    df = penstock.rebalance(spark.range(0, 20_000, 1, 3), CONSUMERS, adaptive=True).map_in_arrow(first, "id long")
    ids = [row["id"] for row in env.collect(df)]
    assert len(ids) == len(set(ids))
    assert 0 < len(ids) < 20_000


@pytest.mark.thorough
def test_operators_after_it(spark: SparkSession, env: Environment) -> None:
    rows = penstock.rebalance(spark.range(0, 20_000, 1, 3), CONSUMERS, adaptive=True).map_in_arrow(where, WHERE)
    sums = rows.where("id % 2 = 0").groupBy((F.col("id") % 7).alias("k")).agg(F.sum("id"), F.count("*"))
    assert_same_rows(env.collect(sums), sums.collect())
    joined = rows.select("id").join(spark.range(0, 40_000, 3), "id").agg(F.count("*"), F.sum("id"))
    assert_same_rows(env.collect(joined), joined.collect())
    both = rows.select("id").union(spark.range(5))
    assert_same_rows(env.collect(both), both.collect())


@pytest.mark.thorough
def test_an_exchange_without_a_function(spark: SparkSession, env: Environment) -> None:
    spread = penstock.rebalance(spark.range(0, 20_000, 1, 3), CONSUMERS, adaptive=True).dataframe()
    df = spread.withColumn("twice", F.col("id") * 2)  # with spark_partition_id, the query would fall back to Spark
    assert sorted(row["id"] for row in env.collect(df)) == list(range(20_000))
    assert PULLED in edges(env)


# The user's own repartition before a function, by the kind of function.
def increment(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"id": pa.array([value + 1 for value in batch.column("id").to_pylist()], pa.int64())})


def increment_in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame + 1


def with_broadcast(spark: SparkSession) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    step = spark.sparkContext.broadcast(1)

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            values = [value + step.value for value in batch.column("id").to_pylist()]
            yield pa.record_batch({"id": pa.array(values, pa.int64())})

    return add


def large(spark: SparkSession) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that PySpark sends by a broadcast variable."""
    ballast = bytes(range(256)) * (1 << 14)

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert len(ballast) == 1 << 22
        yield from increment(batches)

    return add


def in_sql(spark: SparkSession, n: int) -> DataFrame:
    spark.udf.register("increment", lambda value: value + 1, "long")
    spark.range(0, 5000, 1, 3).createOrReplaceTempView("numbers")
    return spark.sql(f"SELECT increment(id) AS id FROM (SELECT /*+ REPARTITION({n}) */ id FROM numbers)")


OWN: dict[str, Callable[[SparkSession, int], DataFrame]] = {
    "mapInArrow": lambda spark, n: spark.range(0, 5000, 1, 3).repartition(n).mapInArrow(increment, "id long"),
    "mapInPandas": lambda spark, n: (
        spark.range(0, 5000, 1, 3).repartition(n).mapInPandas(increment_in_pandas, "id long")
    ),
    "a broadcast variable": lambda spark, n: (
        spark.range(0, 5000, 1, 3).repartition(n).mapInArrow(with_broadcast(spark), "id long")
    ),
    "a large function": lambda spark, n: spark.range(0, 5000, 1, 3).repartition(n).mapInArrow(large(spark), "id long"),
    "an SQL hint": in_sql,
    "a column": lambda spark, n: (
        spark.range(0, 5000, 1, 3)
        .repartition(n)
        .select(F.pandas_udf(lambda column: column + 1, "long")("id").alias("id"))
    ),
    "nested columns": lambda spark, n: (
        spark.range(0, 5000, 1, 3)
        .select("id", F.array("id").alias("a"))
        .repartition(n)
        .mapInPandas(lambda frames: (frame[["id"]] + 1 for frame in frames), "id long")
    ),
}


@pytest.mark.parametrize("consumers", [2, CONSUMERS])
@pytest.mark.parametrize("case", OWN)
def test_the_user_s_own_repartition(spark: SparkSession, case: str, consumers: int) -> None:
    """Only two consumers can run at the same time."""
    df = OWN[case](spark, consumers)
    env = Environment(spark, config=ON, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    is_function = case not in {"an SQL hint", "a column", "nested columns", "mapInPandas"}
    expected = "REBALANCE(least loaded of 4)" if consumers == 2 and is_function else PULLED
    assert expected in edges(env)
    assert env.last_job is not None
    assert consumers in [vertex.tasks for vertex in env.last_job.vertices]


@pytest.mark.parametrize("case", OWN)
def test_without_the_option_a_repartition_is_unchanged(spark: SparkSession, case: str) -> None:
    df = OWN[case](spark, CONSUMERS)
    env = Environment(spark, config=OFF, progress=False)
    assert_same_rows(env.collect(df), df.collect())
    assert edges(env).isdisjoint({PULLED, "REBALANCE(least loaded of 4)"})


def test_a_repartition_without_a_function_is_unchanged(spark: SparkSession) -> None:
    """The user requests this number of equal parts, for example for files."""
    env = Environment(spark, config=ON, progress=False)
    env.collect(spark.range(0, 5000, 1, 3).repartition(CONSUMERS).selectExpr("id + 1 AS id"))
    assert PULLED not in edges(env)


BOUND: dict[str, tuple[str, Callable[[DataFrame], DataFrame]]] = {
    "by a key": ("HASH(", lambda df: df.repartition(CONSUMERS, "id").mapInArrow(where, WHERE)),
    "by ranges": ("RANGE(id", lambda df: df.repartitionByRange(CONSUMERS, "id").mapInArrow(where, WHERE)),
    "groups": ("HASH(", lambda df: df.groupBy((F.col("id") % 7).alias("id")).count().mapInArrow(where, WHERE)),
    "a single group": ("GLOBAL", lambda df: df.agg(F.sum("id").alias("id")).mapInArrow(where, WHERE)),
    "an order": ("RANGE(id", lambda df: df.orderBy("id").mapInArrow(where, WHERE)),
    "none": ("FORWARD", lambda df: df.mapInArrow(where, WHERE).groupBy("id").count()),
}
"""Exchanges that bind rows to tasks, or no exchange: the option does not change them."""


@pytest.mark.parametrize("name", BOUND)
def test_rows_that_are_bound_to_a_task_stay_there(spark: SparkSession, name: str) -> None:
    expected, build = BOUND[name]
    df = build(spark.range(0, 5000, 1, 3))
    env = Environment(spark, config=ON, progress=False)
    rows = env.collect(df)
    assert sorted(row["id"] for row in rows) == sorted(row["id"] for row in df.collect())
    assert any(edge.startswith(expected) for edge in edges(env)), edges(env)
    assert edges(env).isdisjoint({PULLED, "REBALANCE(least loaded of 4)", "RESCALE(least loaded of 4)"})


def test_a_user_accumulator(spark: SparkSession) -> None:
    counter = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    env = Environment(spark, config=ON, progress=False)
    env.collect(spark.range(0, 5000, 1, 3).repartition(CONSUMERS).mapInArrow(count, "id long"))
    assert counter.value == 5000


def served(*answers: bytes) -> int:
    """Send an answer to each request of a consumer, then close the connection; return the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            connection.recv(32)
            connection.sendall(pa.schema([("id", pa.int64())]).serialize().to_pybytes())
            for answer in answers:
                connection.recv(1)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


BATCH = b"b" + pa.record_batch({"id": [1, 2, 3]}).serialize().to_pybytes()
TEXT = b"org.apache.spark.shuffle.FetchFailedException"
FAILED = b"x" + struct.pack(">i", len(TEXT)) + TEXT


def stops(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except Exception:
        return


def retries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in range(10):
        try:
            yield next(batches)
        except StopIteration:
            return
        except Exception:
            continue


@pytest.mark.parametrize("function", [stops, retries])
@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ((BATCH, FAILED), "FetchFailedException"),
        ((BATCH, b""), "the task has ended"),
        ((BATCH, b"b\xff"), None),
        ((BATCH, b"e"), ""),
    ],
)
def test_a_function_that_catches_errors_of_the_exchange(
    function: Any, answers: tuple[bytes, ...], cause: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that cannot be read fails the task, even if the function catches the error."""
    context = SimpleNamespace(partitionId=lambda: 0, stageId=lambda: 1)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    reports: list[Any] = []
    task = PullTask(function, SimpleNamespace(add=reports.extend))  # type: ignore[arg-type]
    ticket = {"host": ["127.0.0.1"], "port": [served(*answers)], "secret": [bytes(32)]}
    output = task(iter([pa.record_batch(ticket)]))
    assert next(output).num_rows == 3
    if cause == "":
        assert list(output) == []
        assert [report["rows"] for report in reports] == [3]
        return
    with pytest.raises(RebalanceError if cause else (OSError, pa.ArrowException), match=cause):
        list(output)
    assert reports == []


@pytest.mark.thorough
def test_a_lost_chunk_is_computed_again(tmp_path: Path) -> None:
    """Spark writes a lost file again, even though the function catches the error."""
    marker = tmp_path / "lost"
    job = TESTS / "jobs" / "lost_chunk.py"
    output = subprocess.run([sys.executable, str(job), str(marker)], check=True, capture_output=True, text=True).stdout
    assert marker.exists()
    assert json.loads(output.splitlines()[-1]) == list(range(6000))


def read_all_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from where(iter(list(batches)))


@pytest.mark.parametrize("limit", [None, 500])
def test_a_function_that_reads_everything_first(spark: SparkSession, env: Environment, limit: int | None) -> None:
    """No consumer gets more than its share until all have started. With a limit, the first consumer runs alone."""
    spread = penstock.rebalance(spark.range(0, 12_000, 1, 2), CONSUMERS, adaptive=True)
    df = spread.map_in_arrow(read_all_first, WHERE)
    rows = env.collect(df if limit is None else df.limit(limit))
    assert len({row["id"] for row in rows}) == len(rows) == (limit or 12_000)
    assert PULLED in edges(env)
    if limit is None:
        consumed = [sum(row["reader"] == index for row in rows) for index in range(CONSUMERS)]
        assert sorted(consumed)[3] <= 12_000 / CONSUMERS * 1.1  # two run at a time; four end before the last two start
        assert min(consumed) > 0


@pytest.mark.thorough
def test_materialized_rows(spark: SparkSession, env: Environment) -> None:
    """Iterating runs task after task; later all tasks run again and return the same rows."""
    spread = penstock.rebalance(spark.range(0, 6000, 1, 2), CONSUMERS, adaptive=True)
    materialized = env.materialize(spread.map_in_arrow(where, WHERE))
    iterated = list(materialized.toLocalIterator())
    consumed = [sum(row["reader"] == index for row in iterated) for index in range(CONSUMERS)]
    assert max(consumed) <= 6000 / CONSUMERS * 1.1
    assert_same_rows(iterated, materialized.collect())


@pytest.fixture
def many_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that runs five tasks at a time, but no barrier stage."""
    operator = sys.modules["penstock.rebalance.operator"]
    monkeypatch.setattr(operator, "task_slots", lambda *_: 0)
    monkeypatch.setattr("penstock.planner.translation.exchanges.max_cores", lambda _: 5)
    monkeypatch.setattr("penstock.planner.translation.repartitions.max_cores", lambda _: 5)


@pytest.mark.usefixtures("many_slots")
@pytest.mark.parametrize("has_function", [False, True])
@pytest.mark.parametrize(
    ("number", "most", "tasks"), [(None, None, 5), (None, 3, 3), (None, 8, 5), (CONSUMERS, None, 6)]
)
def test_number_of_consumers(
    spark: SparkSession, env: Environment, has_function: bool, number: int | None, most: int | None, tasks: int
) -> None:
    """The user's number, else as many as can run at a time, and never more than the step's maximum."""
    rebalanced = penstock.rebalance(spark.range(0, 600, 1, 2), number, adaptive=True)
    df = (
        rebalanced.map_in_arrow(where, WHERE)
        if has_function
        else rebalanced.dataframe().withColumn("twice", F.col("id") * 2)
    )
    df = df if most is None else penstock.with_parallelism(df, max_parallelism=most)
    assert sorted(row["id"] for row in env.collect(df)) == list(range(600))
    assert PULLED in edges(env)
    assert env.last_job is not None
    assert env.last_job.vertices[-1].tasks == tasks


def test_columns_with_equal_names(spark: SparkSession) -> None:
    """Spark cannot send them to Python, and reports it."""
    df = spark.range(0, 50, 1, 2).select("id", "id").repartition(CONSUMERS).mapInArrow(first_column, "id long")
    for rows in (df.collect, lambda: Environment(spark, config=ON, progress=False).collect(df)):
        with pytest.raises(Exception, match="DUPLICATED_FIELD_NAME_IN_ARROW_STRUCT"):
            rows()


def first_column(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch({"id": batch.column(0)})


@pytest.mark.thorough
def test_reports_of_tasks_are_released(spark: SparkSession) -> None:
    """Rows may still be computed afterwards; the user's own accumulators keep counting."""
    counter = spark.sparkContext.accumulator(0)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    def accumulators() -> int:
        gc.collect()
        return sum(isinstance(entry, Accumulator) for entry in _accumulatorRegistry.values())

    before = accumulators()
    df = penstock.rebalance(spark.range(0, 600, 1, 3), CONSUMERS, adaptive=True).map_in_arrow(count, "id long")
    env = Environment(spark, config=OFF, progress=False)
    env.collect(df)
    rows = env.materialize(df)
    del env
    assert accumulators() == before
    assert counter.value == 1200
    assert rows.count() == 600


def test_a_task_that_runs_again_may_still_report(spark: SparkSession) -> None:
    """PySpark would stop updating all accumulators after an update of an unregistered accumulator."""
    owner, reports = threading.Event(), report_accumulator(spark)
    release_with_owner(owner, reports)
    number = reports.aid
    _accumulatorRegistry[number] += [{"rows": 1}]
    assert reports.value == [{"rows": 1}]
    del owner, reports
    _accumulatorRegistry[number] += [{"rows": 2}]
    assert not isinstance(_accumulatorRegistry[number], Accumulator)


def test_nested_columns_in_pandas_are_rejected(spark: SparkSession) -> None:
    df = spark.range(3).select(F.array("id").alias("a"))
    with pytest.raises(RebalanceError, match="several forms"):
        penstock.rebalance(df, 2, adaptive=True).map_in_pandas(lambda frames: frames, df.schema)
