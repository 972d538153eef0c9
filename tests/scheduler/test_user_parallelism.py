"""The user's settings of parallelism apply at every size of data, checked with Spark's stages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import penstock
from penstock import Environment, with_parallelism
from penstock.connectors import FileSink, FileSource, SplitSource, TableSink
from penstock.connectors.core.base import DynamicParallelismInference, SourceProvider
from penstock.decisions.log import DecisionKind
from penstock.errors import PenstockError
from penstock.optimizer import StreamGraphOptimizationStrategy
from tests.support.equality import assert_as_plain_spark, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.usefixtures("interpreted")
SIZES = {"1 row": 1, "1 MiB": 60_000, "100 MiB": 6_500_000}
"""Rows of two columns of 8 bytes, which cannot be compressed."""


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    paths = {}

    def table(size: Any) -> Any:
        if size not in paths:
            paths[size] = str(tmp_path_factory.mktemp("sizes") / "t")
            rows = spark.range(0, SIZES[size], 1, 2).selectExpr("xxhash64(id) as k", "rand(7) as v").coalesce(1)
            rows.write.parquet(paths[size])
        return paths[size]

    return table


def every_size(*cases: Any) -> Any:
    """Return each case with each size; the largest size is marked as slow."""
    return [
        pytest.param(size, case, marks=[pytest.mark.slow] if size == "100 MiB" else [])
        for size in SIZES
        for case in cases
    ]


def tasks_of_last_stage(spark: SparkSession, groups: Any) -> int:
    """Return the number of tasks of the last stage of the Spark jobs in `groups`."""
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    tracker, store = spark.sparkContext.statusTracker(), spark._jsc.sc().statusStore()
    jobs = [job for group in groups for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs for stage in tracker.getJobInfo(job).stageIds}
    infos = {stage: tracker.getStageInfo(stage) for stage in stages}  # None for skipped stages
    ran = [stage for stage, info in infos.items() if info is not None and info.numCompletedTasks]
    return int(store.lastStageAttempt(max(ran)).numCompleteTasks())


def by_penstock(spark: SparkSession, env: Environment) -> Any:
    job = env.last_job
    vertices = [f"penstock-{job.id}-{execution.vertex.id}" for execution in job.vertices]
    return tasks_of_last_stage(spark, [*vertices, f"penstock-{job.id}-whole"])


def by_spark(spark: SparkSession, df: DataFrame) -> Any:
    group = uuid.uuid4().hex
    spark.sparkContext.setJobGroup(group, "plain")
    try:
        rows = df.collect()
    finally:
        for key in ("spark.jobGroup.id", "spark.job.description"):
            spark.sparkContext.setLocalProperty(key, None)
    return rows, tasks_of_last_stage(spark, [group])


def counted(batches: Any) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def few(df: DataFrame) -> Any:
    return df.selectExpr("k % 5 as k", "v").groupBy("k").count()


HINTS = {
    "repartition": (lambda df: df.repartition(7).mapInArrow(counted, "n bigint"), 7),
    "repartition by a key": (lambda df: df.repartition(7, "k").mapInArrow(counted, "n bigint"), 7),
    "repartition of groups": (lambda df: few(df).repartition(3), 3),
    "coalesce": (lambda df: df.repartition(7).coalesce(3).mapInArrow(counted, "n bigint"), 3),
    "hint": (lambda df: df.hint("repartition", 6).mapInArrow(counted, "n bigint"), 6),
    "rebalance": (lambda df: penstock.rebalance(df, 7).map_in_arrow(counted, "n bigint"), 7),
    "rebalance to a single task": (lambda df: penstock.rebalance(df, 1).map_in_arrow(counted, "n bigint"), 1),
    "rebalanced rows": (lambda df: penstock.rebalance(few(df), 5).dataframe(), 5),
    "rescale": (lambda df: penstock.rescale(df, 3).map_in_arrow(counted, "n bigint"), 3),
    "rebalance by load": (lambda df: penstock.rebalance(df, 2, adaptive=True).map_in_arrow(counted, "n bigint"), 2),
}
"""Operations with the same meaning in plain Spark and with Penstock, and their numbers of tasks."""


@pytest.mark.parametrize(("size", "name"), every_size(*HINTS))
def test_hints_set_the_same_tasks_as_in_plain_spark(spark: SparkSession, tables: Any, size: Any, name: Any) -> None:
    make, expected = HINTS[name]
    df = make(spark.read.parquet(tables(size)))
    rows, tasks = by_spark(spark, df)
    assert tasks == expected, "plain Spark"
    env = Environment(spark, progress=False)
    actual = env.collect(df)
    assert by_penstock(spark, env) == expected
    if "n" not in df.columns:
        assert_same_rows(actual, rows)
    else:
        assert sum(row.n for row in actual) == sum(row.n for row in rows) == SIZES[size]


PARALLELISM = {
    "of groups": (lambda df: with_parallelism(few(df), 7), 7),
    "of a single task": (lambda df: with_parallelism(few(df), 1), 1),
    "of a join": (lambda df: with_parallelism(few(df).join(few(df).withColumnRenamed("count", "n"), "k"), 4), 4),
    "of a union": (lambda df: with_parallelism(few(df).union(few(df)), 3), 3),
    "of a window": (
        lambda df: with_parallelism(few(df).selectExpr("k", "rank() over (partition by k order by count)"), 6),
        6,
    ),
    "in a subquery": (
        lambda df: df.sparkSession.sql(
            "select * from {t} where k in (select k from {few})", t=few(df), few=with_parallelism(few(df), 5)
        ),
        None,
    ),
}


@pytest.mark.parametrize(("size", "name"), every_size(*PARALLELISM))
def test_with_parallelism_applies_at_every_size(spark: SparkSession, tables: Any, size: Any, name: Any) -> None:
    make, expected = PARALLELISM[name]
    df = make(spark.read.parquet(tables(size)))
    env = Environment(spark, progress=False)
    assert_as_plain_spark(env, df)
    assert env.last_job.vertices
    if expected is not None:
        assert by_penstock(spark, env) == expected
    else:  # it applies to a vertex before the last
        (subquery,) = [execution for execution in env.last_job.vertices if execution.parallelism == 5]
        assert tasks_of_last_stage(spark, [f"penstock-{env.last_job.id}-{subquery.vertex.id}"]) == 5


SINKS = {
    "the sink": ({}, {"parallelism": 5}, {}),
    "the call": ({}, {}, {"parallelism": 5}),
    "the option": ({"sink.parallelism": 5}, {}, {}),
    "the call over the sink and the option": ({"sink.parallelism": 2}, {"parallelism": 3}, {"parallelism": 5}),
    "the sink over the option": ({"sink.parallelism": 2}, {"parallelism": 5}, {}),
    "the writer": ({}, {"options": {"sink.parallelism": "5"}}, {}),
    "the writer over the option": ({"sink.parallelism": 2}, {"options": {"sink.parallelism": "5"}}, {}),
    "the sink over the writer": ({}, {"parallelism": 5, "options": {"sink.parallelism": "2"}}, {}),
}


@pytest.mark.parametrize(("size", "name"), every_size(*SINKS))
def test_the_most_specific_setting_of_a_sink_applies(
    spark: SparkSession, tables: Any, tmp_path: Path, size: Any, name: Any
) -> None:
    config, sink, call = SINKS[name]
    env = Environment(spark, progress=False, config=config)
    df = few(spark.read.parquet(tables(size)))
    env.write(df, FileSink(str(tmp_path / "out"), **sink), **call)
    env.execute()
    assert by_penstock(spark, env) == 5
    assert_same_rows(spark.read.parquet(str(tmp_path / "out")).collect(), df.collect())


TABLES = {
    "the table": ({}, "OPTIONS ('sink.parallelism' '5')", {}),
    "the table over the option": ({"sink.parallelism": 2}, "OPTIONS ('sink.parallelism' '5')", {}),
    "its properties": ({"sink.parallelism": 2}, "TBLPROPERTIES ('sink.parallelism' = '5', 'sink.rolling' = 'x')", {}),
    "its options over its properties": (
        {},
        "OPTIONS ('sink.parallelism' '5') TBLPROPERTIES ('sink.parallelism' = '2')",
        {},
    ),
    "the sink over the table": ({}, "OPTIONS ('sink.parallelism' '2')", {"parallelism": 5}),
    "the writer over the table": (
        {},
        "OPTIONS ('sink.parallelism' '2')",
        {"options": {"sink.parallelism": "5"}},
    ),
}


@pytest.fixture
def target(spark: SparkSession) -> Iterator[Any]:
    """Return a function that creates the table ``target`` with a clause."""
    yield lambda clause: spark.sql(f"CREATE TABLE target (k long, count long) USING parquet {clause}")
    spark.sql("DROP TABLE IF EXISTS target")


@pytest.mark.thorough
@pytest.mark.parametrize("name", TABLES)
def test_the_most_specific_setting_of_a_table_applies(spark: SparkSession, tables: Any, target: Any, name: Any) -> None:
    config, clause, sink = TABLES[name]
    target(clause)
    env = Environment(spark, progress=False, config=config)
    df = few(spark.read.parquet(tables("1 row")))
    env.write(df, TableSink("target", mode="append", **sink))
    env.execute()
    assert by_penstock(spark, env) == 5
    assert_same_rows(spark.table("target").collect(), df.collect())


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in TABLES if "over the table" not in name])
def test_the_settings_of_a_table_apply_to_statements(spark: SparkSession, tables: Any, target: Any, name: Any) -> None:
    config, clause, _ = TABLES[name]
    target(clause)
    env = Environment(spark, progress=False, config=config)
    few(spark.read.parquet(tables("1 row"))).createOrReplaceTempView("few")
    env.sql("INSERT INTO target SELECT * FROM few")
    assert by_penstock(spark, env) == 5
    assert spark.table("target").count() == 1


def test_invalid_options_of_sinks_are_refused(spark: SparkSession, tables: Any, target: Any, tmp_path: Path) -> None:
    env = Environment(spark, progress=False)
    df = few(spark.read.parquet(tables("1 row")))
    env.write(df, FileSink(str(tmp_path / "out"), options={"sink.paralelism": "5"}))
    with pytest.raises(PenstockError, match=r"(?s)sink\.paralelism.*did you mean .sink\.parallelism."):
        env.execute()
    assert not (tmp_path / "out").exists()
    target("OPTIONS ('sink.parallelism' 'many')")
    env.write(df, TableSink("target", mode="append"))
    with pytest.raises(PenstockError, match=r"sink\.parallelism"):
        env.execute()
    assert spark.table("target").count() == 0


class OwnInference(FileSource, DynamicParallelismInference):
    """Files with an inference of their own."""

    def infer_parallelism(self, context: Any) -> int:
        return 3


SOURCES = {
    "read": ({}, {}, lambda env, path: env.read(FileSource(path), parallelism=3)),
    "its own inference": ({}, {}, lambda env, path: env.read(OwnInference(path))),
    "read over its own inference": ({}, {}, lambda env, path: env.read(OwnInference(path), parallelism=2)),
    "the option": ({"scan.parallelism": 3}, {}, lambda env, path: env.spark.read.parquet(path)),
    "the reader": (
        {},
        {"scan.parallelism": "3"},
        lambda env, path: env.spark.read.option("scan.parallelism", 3).parquet(path),
    ),
    "the default without inference": (
        {"scan.infer-parallelism.enabled": False, "parallelism.default": 3},
        {},
        lambda env, path: env.spark.read.parquet(path),
    ),
}


@pytest.mark.parametrize(("size", "name"), every_size(*SOURCES))
def test_the_settings_of_a_source_apply(spark: SparkSession, tables: Any, size: Any, name: Any) -> None:
    config, _, read = SOURCES[name]
    env = Environment(spark, progress=False, config=config)
    df = read(env, tables(size))
    expected = 2 if name == "read over its own inference" else 3
    assert env.count(df) == SIZES[size]
    (scan,) = [execution for execution in env.last_job.vertices if "Source" in execution.vertex.name]
    assert scan.parallelism == expected
    group = f"penstock-{env.last_job.id}-{scan.vertex.id}"
    assert tasks_of_last_stage(spark, [group]) == expected


class RecordingInference(FileSource, DynamicParallelismInference):
    """Files whose inference records its bound and returns more than that."""

    bounds: list[Any] = []

    def infer_parallelism(self, context: Any) -> int:
        self.bounds.append(context.parallelism_inference_upper_bound)
        return 700


class Ranges(SplitSource):
    """A source with a parallelism of its own."""

    parallelism = 3

    @property
    def schema(self) -> StructType:
        return StructType().add("id", "long")

    def enumerate_splits(self, context: Any) -> Any:
        return [range(start, start + 6000) for start in range(0, SIZES["1 MiB"], 6000)]

    def read_split(self, split: Any, columns: Any) -> Iterator[Any]:
        yield pa.record_batch({"id": pa.array(split, pa.int64())}).select(list(columns))

    def infer_parallelism(self, context: Any) -> int:
        RecordingInference.bounds.append(context.parallelism_inference_upper_bound)
        return 700


INFER = "scan.infer-parallelism"
MAXIMUM = "execution.batch.adaptive.auto-parallelism.max-parallelism"
SOURCES_DEFAULT = "execution.batch.adaptive.auto-parallelism.default-source-parallelism"
INFERENCE = {
    "no settings": ({}, lambda env, path: env.read(RecordingInference(path)), [128], 128),
    "the job's maximum": ({MAXIMUM: 6}, lambda env, path: env.read(RecordingInference(path)), [6], 6),
    "a maximum above the default": (
        {"parallelism.default": 3, f"{INFER}.max": 5},
        lambda env, path: env.read(RecordingInference(path)),
        [5],
        5,
    ),
    "the default": ({"parallelism.default": 3}, lambda env, path: env.read(RecordingInference(path)), [3], 3),
    "the job's maximum over the default": (
        {MAXIMUM: 6, "parallelism.default": 3},
        lambda env, path: env.read(RecordingInference(path)),
        [6],
        6,
    ),
    "the sources' default over the default": (
        {SOURCES_DEFAULT: 5, "parallelism.default": 3},
        lambda env, path: env.read(RecordingInference(path)),
        [5],
        5,
    ),
    "the sources' default alone": ({SOURCES_DEFAULT: 5}, lambda env, path: env.read(RecordingInference(path)), [5], 5),
    "the sources' default above the job's maximum": (
        {SOURCES_DEFAULT: 8, MAXIMUM: 6},
        lambda env, path: env.read(RecordingInference(path)),
        [6],
        6,
    ),
    "inference is off": (
        {"parallelism.default": 3, f"{INFER}.enabled": False},
        lambda env, path: env.read(RecordingInference(path)),
        [],
        3,
    ),
    "auto-parallelism is off": (
        {"parallelism.default": 3, "execution.batch.adaptive.auto-parallelism.enabled": False},
        lambda env, path: env.read(RecordingInference(path)),
        [],
        3,
    ),
    "read": ({}, lambda env, path: env.read(RecordingInference(path), parallelism=3), [], 3),
    "the option": ({"scan.parallelism": 3}, lambda env, path: env.read(RecordingInference(path)), [], 3),
    "the source": ({}, lambda env, path: env.read(RecordingInference(path, parallelism=3)), [], 3),
    "a source with a parallelism of its own": ({}, lambda env, path: env.read(Ranges()), [], 3),
    "its provider": ({}, lambda env, path: env.read(SourceProvider(RecordingInference(path), 3)), [], 3),
}


@pytest.mark.parametrize("threshold", ["0", "64 mb"])
@pytest.mark.parametrize("name", INFERENCE)
def test_inference_gets_the_bound_of_the_most_specific_setting(
    spark: SparkSession, tables: Any, name: str, threshold: str
) -> None:
    config, read, bounds, expected = INFERENCE[name]
    env = Environment(
        spark, progress=False, config=config | {"execution.batch.adaptive.whole-query-threshold": threshold}
    )
    RecordingInference.bounds.clear()
    df = read(env, tables("1 MiB"))
    env.explain(df)
    assert bounds == RecordingInference.bounds
    assert env.count(df) == SIZES["1 MiB"]
    assert RecordingInference.bounds == 2 * bounds
    (scan,) = [execution for execution in env.last_job.vertices if "Source" in execution.vertex.name]
    assert scan.parallelism == expected
    assert tasks_of_last_stage(spark, [f"penstock-{env.last_job.id}-{scan.vertex.id}"]) == expected


class CountingStrategy(StreamGraphOptimizationStrategy):
    """Strategy that counts its calls and changes nothing."""

    calls = 0

    def on_operators_finished(self, finished: Any, context: Any) -> bool:
        type(self).calls += 1
        return False


def count_call(finished: Any, context: Any) -> bool:
    return CountingStrategy().on_operators_finished(finished, context)


@pytest.mark.parametrize(
    "strategy", [CountingStrategy, CountingStrategy(), count_call], ids=["class", "object", "function"]
)
def test_strategies_are_called(spark: SparkSession, tables: Any, strategy: Any) -> None:
    CountingStrategy.calls = 0
    env = Environment(spark, progress=False, strategies=[strategy])
    env.collect(few(spark.read.parquet(tables("1 row"))))
    assert CountingStrategy.calls


def test_spark_runs_a_small_query_without_settings(spark: SparkSession, tables: Any) -> None:
    env = Environment(spark, config={"execution.native": False}, progress=False)
    df = few(spark.read.parquet(tables("1 row")))
    explained = env.explain(df)
    assert str(explained).startswith("Spark runs this query unchanged, as its sources hold")
    assert "HashAggregate" in str(explained)
    assert explained.as_dict()["decisions"][0]["chosen"] == "handed to Spark whole"
    env.collect(df)
    assert [decision.kind for decision in env.last_job.decisions] == [DecisionKind.WHOLE_QUERY]
    assert "Plan before it runs" in str(env.explain(with_parallelism(df, 2)))


def test_only_settings_of_the_query_itself_apply(spark: SparkSession, tables: Any) -> None:
    """Spark's optimizer drops an exchange below another exchange, but the user's settings there still apply."""
    env = Environment(spark, config={"execution.native": False}, progress=False)
    df = few(spark.read.parquet(tables("1 row")))
    rebalanced = penstock.rebalance(df, 3).dataframe()
    assert "Plan before it runs" in str(env.explain(rebalanced.repartition(2)))
    assert str(env.explain(df.repartition(2))).startswith("Spark runs this query unchanged")


def test_invalid_options_are_refused_at_every_size(spark: SparkSession, tables: Any) -> None:
    df = spark.read.option("scan.paralelism", 3).parquet(tables("1 row"))
    with pytest.raises(PenstockError, match=r"(?s)scan\.paralelism.*did you mean .scan\.parallelism."):
        Environment(spark, progress=False).collect(df)
    with pytest.raises(PenstockError, match=r"scan\.parallelism"):
        Environment(spark, progress=False).collect(
            spark.read.option("scan.parallelism", "many").parquet(tables("1 row"))
        )
    config = {"execution.batch.adaptive.stream-graph-optimization.strategies": "no.such.Strategy"}
    with pytest.raises(PenstockError, match="cannot be imported"):
        Environment(spark, progress=False, config=config).collect(spark.range(1))
