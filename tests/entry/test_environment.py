"""The environment on real Spark: actions, sinks, sources, hints and cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from penstock import Environment, with_parallelism
from penstock.connectors import FileSink, FileSource, Source
from penstock.decisions.log import DecisionKind
from penstock.errors import ConfigError, JobCancelledError, PenstockError, SourceError
from tests.support.equality import assert_as_plain_spark, assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = str(tmp_path_factory.mktemp("orders") / "o")
    spark.range(200_000).selectExpr("id", "id % 100 as user", "id * 2 as amount").repartition(4).write.parquet(folder)
    return folder


def test_all_actions_return_the_rows_of_spark(env: Environment, spark: SparkSession, orders: Any) -> None:
    df = spark.read.parquet(orders).groupBy("user").agg(F.sum("amount").alias("s"))
    expected = df.collect()
    assert_same_rows(env.collect(df), expected)
    assert env.to_arrow(df).num_rows == 100
    assert sorted(env.to_pandas(df)["s"]) == sorted(row.s for row in expected)
    assert env.count(df) == 100
    assert_same_rows(
        env.collect(env.sql("select * from {t} where user < :u".replace("{t}", f"parquet.`{orders}`"), u=3)),
        spark.read.parquet(orders).where("user < 3").collect(),
    )


@pytest.mark.thorough
def test_materialize_runs_once_and_measures_its_size(env: Environment, spark: SparkSession, orders: Any) -> None:
    df = spark.read.parquet(orders).groupBy("user").count()
    row_count = spark.sparkContext.accumulator(0)

    def count_rows(batches: Any) -> Iterator[Any]:
        for batch in batches:
            row_count.add(batch.num_rows)
            yield batch

    counted = env.materialize(df.mapInArrow(count_rows, df.schema))
    for _ in range(2):
        assert counted.count() == 100
    assert row_count.value == 100
    materialized = env.materialize(df)
    vertices = len(env.last_job.vertices)
    assert vertices == 3
    assert_same_rows(materialized.collect(), df.collect())
    assert_same_rows(materialized.join(df, "user").collect(), df.join(df, "user").collect())
    sizes = materialized._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert int(str(sizes)) < 100_000
    assert materialized.sparkSession is spark


def test_two_sinks_share_a_join(env: Environment, spark: SparkSession, orders: Any, tmp_path: Path) -> None:
    """A function after the join counts the rows it receives."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def count_rows(batches: Any) -> Iterator[Any]:
        import uuid

        for batch in batches:
            (seen / uuid.uuid4().hex).write_text(str(len(batch)))
            yield batch

    left, right = spark.read.parquet(orders), spark.range(100).selectExpr("id as user", "id % 7 as team")
    joined = left.join(right.hint("merge"), "user")
    joined = joined.mapInPandas(count_rows, joined.schema)
    sums, rows = joined.groupBy("team").agg(F.sum("amount").alias("s")), joined.where("team = 3").select("id", "team")
    env.write(sums, FileSink(str(tmp_path / "first")))
    env.write(rows, FileSink(str(tmp_path / "second"), format="json"))
    job = env.execute("shared")
    assert sum(int(file.read_text()) for file in seen.iterdir()) == 200_000
    assert sum("Join" in execution.vertex.name for execution in job.vertices) == 1
    assert any(d.kind is DecisionKind.SHARING for d in job.decisions)
    assert_same_rows(spark.read.parquet(str(tmp_path / "first")).collect(), sums.collect())
    assert_same_rows(spark.read.json(str(tmp_path / "second")).select("id", "team").collect(), rows.collect())


@pytest.mark.thorough
def test_a_job_leaves_the_session_unchanged(env: Environment, spark: SparkSession, orders: Any) -> None:
    spark.createDataFrame([(1,)], "a int").createOrReplaceTempView("mine")
    spark.sparkContext.setJobGroup("my group", "my job")
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    properties = ("spark.jobGroup.id", "spark.job.description")

    def state() -> Any:
        return (
            dict(spark.conf.getAll),
            [t.name for t in spark.catalog.listTables()],
            [spark.sparkContext.getLocalProperty(p) for p in properties],
        )

    before = state()
    env.collect(spark.read.parquet(orders).groupBy("user").count())
    assert state() == before
    with pytest.raises(PenstockError):
        env.collect(spark.read.parquet(orders).select(F.raise_error(F.lit("no"))))
    assert state() == before
    spark.catalog.dropTempView("mine")
    spark.sparkContext.setLocalProperty(properties[0], None)
    spark.sparkContext.setLocalProperty(properties[1], None)


@pytest.mark.parametrize("number", [1, 3, 9])
@pytest.mark.parametrize("operator", ["source", "aggregate", "join", "union", "memory"])
def test_with_parallelism_overrides_options(
    make_env: Callable[..., Environment], spark: SparkSession, orders: Any, number: int, operator: str
) -> None:
    env = make_env(**{"scan.parallelism": 2, "execution.batch.adaptive.auto__parallelism.max__parallelism": 4})
    base = spark.read.parquet(orders)
    df = {
        "source": lambda: with_parallelism(base, number, name="here"),
        "aggregate": lambda: with_parallelism(
            base.groupBy("user").agg(F.sum("amount").alias("id")), number, name="here"
        ),
        "join": lambda: with_parallelism(
            base.join(spark.range(10).toDF("user").hint("merge"), "user"), number, name="here"
        ),
        "union": lambda: with_parallelism(base.union(base), number, name="here"),
        "memory": lambda: with_parallelism(
            spark.createDataFrame([(i, i) for i in range(50)], "user long, id long"), number, name="here"
        ),
    }[operator]()
    result = df.groupBy("user").agg(F.max("id"))
    assert_as_plain_spark(env, result)
    (snapshot,) = [e for e in env.last_job.vertices if "here" in e.vertex.name]
    assert snapshot.parallelism == number
    if snapshot.tasks:
        assert snapshot.tasks == number


@pytest.mark.thorough
@pytest.mark.parametrize("maximum", [1, 3])
@pytest.mark.parametrize("operator", ["source", "aggregate", "join", "union", "memory"])
def test_max_parallelism_bounds_the_tasks_of_an_operator(
    make_env: Callable[..., Environment], spark: SparkSession, orders: Any, maximum: int, operator: str
) -> None:
    """The options allow more tasks for each operator."""
    env = make_env(
        **{"scan.parallelism": 8, "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "16 kb"}
    )
    base = spark.read.parquet(orders)
    few = base.groupBy("user").agg(F.sum("amount").alias("id"))
    df = {
        "source": lambda: base,
        "aggregate": lambda: base.groupBy("id").agg(F.sum("amount").alias("user")),
        "join": lambda: base.join(few.withColumnRenamed("id", "s").hint("merge"), "user"),
        "union": lambda: base.union(base),
        "memory": lambda: spark.createDataFrame([(i, i) for i in range(50)], "user long, id long"),
    }[operator]()
    result = with_parallelism(df, max_parallelism=maximum, name="here").groupBy("user").agg(F.max("id"))
    assert_as_plain_spark(env, result)
    (snapshot,) = [e for e in env.last_job.vertices if "here" in e.vertex.name]
    assert snapshot.vertex.max_parallelism == maximum
    tasks = snapshot.tasks
    if tasks is None:  # a vertex without exchange output runs in the tasks of its reader
        vertices = env.last_job.vertices
        vertex_id = snapshot.vertex.id
        (reader,) = [e for e in vertices if any(edge.source_vertex_id == vertex_id for edge in e.vertex.inputs)]
        tasks = reader.tasks
    assert tasks is not None
    assert tasks <= maximum
    if operator != "memory":
        assert tasks == maximum


class Rows(Source):
    def __init__(self, answer: Any, parallelism: Any = None) -> None:
        self.answer, self.parallelism = answer, parallelism
        self.contexts: list[Any] = []

    def read(self, spark: SparkSession) -> Any:
        return spark.range(0, 1000, 1, 12).toDF("id")

    def infer_parallelism(self, context: Any) -> Any:
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class WithoutInference(Source):
    def read(self, spark: SparkSession) -> Any:
        return spark.range(0, 1000, 1, 12).toDF("id")


@pytest.mark.parametrize(
    ("source", "parallelism", "expected", "reason"),
    [
        (WithoutInference(), None, 10, "it does not infer its parallelism"),
        (Rows(5), None, 5, "the source asks for 5 tasks"),
        (Rows(5, parallelism=3), None, 3, "fixed by the connector"),
        (Rows(5, parallelism=3), 2, 2, "2"),
        (Rows(OSError("no route")), None, 10, "no route"),
        (Rows(0), None, 10, "returned 0"),
    ],
)
def test_a_user_defined_source_determines_its_parallelism(
    make_env: Callable[..., Environment], source: Any, parallelism: int | None, expected: int, reason: str
) -> None:
    env = make_env(
        **{
            "execution.batch.adaptive.auto__parallelism.default__source__parallelism": 10,
            "execution.batch.adaptive.auto__parallelism.avg__data__volume__per__task": "3 mb",
        }
    )
    df = env.read(source, parallelism=parallelism)
    assert env.count(df.where("id % 2 = 0")) == 500
    first = env.last_job.vertices[0]
    assert (first.parallelism, first.tasks) == (expected, expected)
    assert reason in first.reason
    if isinstance(source, Rows):
        is_queried = parallelism is None and source.parallelism is None
        inputs = [(c.parallelism_inference_upper_bound, c.data_volume_per_task) for c in source.contexts]
        assert inputs == [(10, 3 << 20)] * is_queried


@pytest.mark.parametrize(
    ("parallelism", "number", "maximum", "expected", "is_queried"),
    [
        (None, None, 3, 3, True),
        (None, None, 9, 5, True),
        (None, 7, None, 7, False),
        (None, 2, 4, 2, False),
        (2, None, 4, 2, False),
        (2, 7, None, 7, False),
        (6, None, 4, 4, True),
    ],
)
@pytest.mark.parametrize("case", ["source", "projection", "filter", "bounded twice"])
def test_with_parallelism_overrides_a_user_defined_source(
    make_env: Callable[..., Environment],
    case: str,
    parallelism: int | None,
    number: int | None,
    maximum: int | None,
    expected: int,
    is_queried: bool,
) -> None:
    """Spark's optimizer drops an exchange below another exchange, and its hint must not get lost."""
    env, source = make_env(), Rows(5)
    df = env.read(source, parallelism=parallelism)
    df = {
        "source": lambda: df,
        "projection": lambda: df.selectExpr("id", "id + 1 as more"),
        "filter": lambda: df.where("id % 2 = 0"),
        "bounded twice": lambda: with_parallelism(df, max_parallelism=20, name="below"),
    }[case]()
    result = with_parallelism(df, number, max_parallelism=maximum, name="here")
    assert_as_plain_spark(env, result)
    assert env.count(result) == (500 if case == "filter" else 1000)
    (first,) = [e for e in env.last_job.vertices if "here" in e.vertex.name]
    assert (first.parallelism, first.tasks) == (expected, expected)
    assert bool(source.contexts) is is_queried


def test_a_slow_source_does_not_block_other_vertices(env: Environment, spark: SparkSession, orders: Any) -> None:
    """A vertex of another source finishes while the slow source still infers its parallelism."""
    release = threading.Event()

    class Slow(Rows):
        def infer_parallelism(self, context: Any) -> int:
            release.wait(60)
            return 2

    slow = env.read(Slow(2)).withColumnRenamed("id", "user")
    df = spark.read.parquet(orders).hint("merge").join(slow, "user").groupBy("user").count()
    env.write(df, FileSink(orders + "-slow", mode="overwrite"))
    job = env.execute_async("slow source")
    deadline = time.time() + 60
    while time.time() < deadline and job.status_counts.get("FINISHED", 0) < 1:
        time.sleep(0.1)
    states = job.status_counts
    release.set()
    job.wait()
    assert states["FINISHED"] == 1
    assert states["CREATED"] == 1


@pytest.mark.thorough
def test_a_cancelled_job_leaves_no_tasks_or_files(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    def sleep(batches: Any) -> Iterator[Any]:
        import time

        for batch in batches:
            time.sleep(60)
            yield batch

    df = spark.range(0, 10, 1, 2).groupBy("id").count()
    env.write(df.mapInPandas(sleep, df.schema), FileSink(str(tmp_path / "out")))
    job = env.execute_async("cancelled")
    tracker = spark.sparkContext.statusTracker()
    deadline = time.time() + 60
    while time.time() < deadline and not (len(job.vertices) == 2 and tracker.getActiveJobsIds()):
        time.sleep(0.1)
    time.sleep(1)
    job.cancel()
    with pytest.raises(JobCancelledError, match="cancelled by the user"):
        job.wait(30)
    deadline = time.time() + 20
    while time.time() < deadline and tracker.getActiveJobsIds():
        time.sleep(0.1)
    assert not tracker.getActiveJobsIds()
    assert list(tmp_path.iterdir()) == []
    assert job.state == "CANCELED"


def test_spark_runs_small_queries_unchanged(spark: SparkSession, orders: Any) -> None:
    config = {"execution.batch.adaptive.whole-query-threshold": "1 gb", "execution.native": False}
    env = Environment(spark, config=config, progress=False)
    df = spark.read.parquet(orders).groupBy("user").count()
    assert_as_plain_spark(env, df)
    (decision,) = env.last_job.decisions
    assert decision.kind is DecisionKind.WHOLE_QUERY
    assert env.last_job.vertices == []


def test_small_jobs_with_several_sinks_run_as_jobs(spark: SparkSession, orders: Any, tmp_path: Path) -> None:
    env = Environment(spark, config={"execution.batch.adaptive.whole-query-threshold": "1 gb"}, progress=False)
    grouped = spark.read.parquet(orders).groupBy("user").count()
    env.write(grouped, FileSink(str(tmp_path / "first")))
    env.write(grouped.where("user < 5"), FileSink(str(tmp_path / "second")))
    job = env.execute()
    assert sum("Aggregate" in execution.vertex.name for execution in job.vertices) == 1
    assert spark.read.parquet(str(tmp_path / "second")).count() == 5


def test_explain_reads_no_data(env: Environment, spark: SparkSession, orders: Any) -> None:
    spark.sparkContext.setJobGroup("explained", "")
    df = spark.read.parquet(orders).groupBy("user").count()
    before = len(spark.sparkContext.statusTracker().getJobIdsForGroup("explained"))
    explained = env.explain(df)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("explained")) == before
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    text = str(explained)
    assert "shuffled by user: " in text
    assert "decided once the inputs of its step are measured" in text
    assert [n["parallelism"] for n in explained.as_dict()["nodes"] if n["operator"] == "Source"] == [1]


@pytest.mark.thorough
def test_a_repartition_of_the_user_is_preserved(env: Environment, spark: SparkSession, orders: Any) -> None:
    df = spark.read.parquet(orders).repartition(7)
    env.collect(df)
    assert 7 in [e.parallelism for e in env.last_job.vertices]
    assert len(env.collect(df.groupBy(F.spark_partition_id()).count())) == 7


def test_names_of_vertices_are_spark_job_descriptions(env: Environment, spark: SparkSession, orders: Any) -> None:
    env.collect(spark.read.parquet(orders).groupBy("user").count())
    job = env.last_job
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    for execution in job.vertices:
        jobs = tracker.getJobIdsForGroup(job.graphs.spark_job_group(execution.vertex))
        assert jobs
        described = {store.job(job_id).description().get() for job_id in jobs}
        assert all(f"{execution.vertex.id} {execution.vertex.name}" in text for text in described), described


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda env, df: env.execute(), PenstockError, "nothing to execute"),
        (lambda env, df: env.write(df, "path"), PenstockError, "not a sink"),
        (lambda env, df: env.read("path"), SourceError, "not a source"),
        (lambda env, df: with_parallelism(df, 0), SourceError, "invalid parallelism 0"),
        (lambda env, df: with_parallelism(df, "abc"), SourceError, "invalid parallelism 'abc'"),
        (lambda env, df: with_parallelism(df), SourceError, "invalid parallelism None"),
        (lambda env, df: with_parallelism(df, max_parallelism=0), SourceError, "invalid parallelism 0"),
        (lambda env, df: with_parallelism(df, 5, max_parallelism=4), SourceError, "5 .* more than max_parallelism 4"),
        (lambda env, df: env.write(df, FileSink("x"), parallelism=-1), SourceError, "invalid parallelism -1"),
        (lambda env, df: FileSource("x", "avro2"), SourceError, "format 'avro2'"),
        (lambda env, df: Environment(env.spark, config={"paralelism.default": 1}), ConfigError, "did you mean"),
    ],
)
def test_invalid_calls_raise_an_error(
    env: Environment, spark: SparkSession, make: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        make(env, spark.range(3))
