"""Settings of the session and properties of the thread reach the tasks of every vertex."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF
from tests.support.equality import assert_as_plain_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment


DATES = "concat(id % 28 + 1, '/', id % 12 + 1, '/2020') d"


def batch_sizes(frames: Any) -> Iterator[Any]:
    for frame in frames:
        yield frame.assign(id=len(frame))


CASES = {
    "dates in texts": (
        {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
        lambda s: s.range(60).selectExpr(DATES).repartition(3).selectExpr("to_date(d, 'd/M/yyyy') x"),
    ),
    "dates in texts, legacy pattern letters": (
        {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
        lambda s: (
            s.range(60).selectExpr(DATES).repartition(3).selectExpr("date_format(to_date(d, 'd/M/yyyy'), 'YYYY u') x")
        ),
    ),
    "dates in CSV texts": (
        {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
        lambda s: (
            s.range(60)
            .selectExpr(DATES)
            .repartition(3)
            .selectExpr("from_csv(d, 'x date', map('dateFormat', 'd/M/yyyy')) x")
        ),
    ),
    "dates in JSON texts": (
        {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
        lambda s: (
            s.range(60)
            .selectExpr(DATES)
            .repartition(3)
            .selectExpr("from_json(concat('{\"x\":\"', d, '\"}'), 'x date', map('dateFormat', 'd/M/yyyy')) x")
        ),
    ),
    "a strict parser": (
        {"spark.sql.legacy.timeParserPolicy": "CORRECTED"},
        lambda s: s.range(60).selectExpr(DATES).repartition(3).selectExpr("try_to_date(d, 'dd/MM/yyyy') x"),
    ),
    "duplicate keys of maps": (
        {"spark.sql.mapKeyDedupPolicy": "LAST_WIN"},
        lambda s: (
            s.range(60)
            .repartition(3)
            .selectExpr("map_from_arrays(array(id % 3, id % 2), array(1, 2)) m")
            .selectExpr("m[0] a", "m[1] b")
        ),
    ),
    "concatenated maps": (
        {"spark.sql.mapKeyDedupPolicy": "LAST_WIN"},
        lambda s: (
            s.range(60)
            .groupBy(F.expr("id % 7 k"))
            .agg(F.max("id").alias("m"))
            .selectExpr("map_concat(map(k, m), map(k, k)) x")
            .selectExpr("map_values(x) x")
        ),
    ),
    "casts without ANSI": (
        {"spark.sql.ansi.enabled": "false"},
        lambda s: (
            s.range(60).repartition(3).selectExpr("cast(concat(id, 'x') as int) a", "cast(id * 1000000000 as int) b")
        ),
    ),
    "divisions without ANSI": (
        {"spark.sql.ansi.enabled": "false"},
        lambda s: s.range(60).groupBy(F.expr("id % 7 k")).agg(F.sum("id").alias("s")).selectExpr("s / k x", "s % k y"),
    ),
    "time zone": (
        {"spark.sql.session.timeZone": "Asia/Kathmandu"},
        lambda s: (
            s.range(60)
            .repartition(3)
            .selectExpr("timestamp_seconds(id * 100000) t")
            .selectExpr("hour(t) h", "cast(t as string) x", "date_format(t, 'HH:mm z') y")
        ),
    ),
    "time zone of groups": (
        {"spark.sql.session.timeZone": "America/St_Johns"},
        lambda s: s.range(600).groupBy(F.expr("to_date(timestamp_seconds(id * 10000)) d")).count(),
    ),
    "nulls in JSON": (
        {"spark.sql.jsonGenerator.ignoreNullFields": "false"},
        lambda s: s.range(60).repartition(3).selectExpr("to_json(struct(id, if(id % 2 = 0, null, id) x)) j"),
    ),
    "texts of structs": (
        {"spark.sql.legacy.castComplexTypesToString.enabled": "true"},
        lambda s: s.range(60).repartition(3).selectExpr("cast(struct(id, array(null, id)) as string) x"),
    ),
    "precision of decimals": (
        {"spark.sql.decimalOperations.allowPrecisionLoss": "false"},
        lambda s: (
            s.range(60)
            .repartition(3)
            .selectExpr("cast(id as decimal(38, 18)) x")
            .selectExpr("try_divide(x, cast(3 as decimal(38, 18))) y")
        ),
    ),
    "rows in a batch of Arrow": (
        {"spark.sql.execution.arrow.maxRecordsPerBatch": "7"},
        lambda s: s.range(0, 60, 1, 1).repartition(3, "id").mapInPandas(batch_sizes, "id long"),
    ),
    "size of null": (
        {"spark.sql.ansi.enabled": "false", "spark.sql.legacy.sizeOfNull": "true"},
        lambda s: s.range(60).repartition(3).selectExpr("size(if(id % 2 = 0, null, array(id))) x"),
    ),
    "exists with null": (
        {"spark.sql.legacy.followThreeValuedLogicInArrayExists": "false"},
        lambda s: s.range(60).repartition(3).selectExpr("exists(array(id, null), x -> x > 90) x"),
    ),
    "case of column names": (
        {"spark.sql.caseSensitive": "true"},
        lambda s: s.range(60).selectExpr("id a", "id * 2 A").groupBy(F.expr("a % 3 k")).agg(F.sum("A").alias("s")),
    ),
}


@pytest.mark.parametrize("whole", [0, None], ids=["in vertices", "unchanged"])
@pytest.mark.parametrize("case", CASES)
def test_settings_of_the_session_reach_tasks(spark: SparkSession, case: str, whole: int | None) -> None:
    from penstock import Environment

    values, pipeline = CASES[case]
    with with_settings(spark, values):
        df = pipeline(spark)
        assert_as_plain_spark(Environment(spark, config=OFF if whole == 0 else {}, progress=False), df)


def local_property(_):  # type: ignore[no-untyped-def]  # Spark would look at types
    return TaskContext.get().getLocalProperty("greeting")


def property_in_batches(frames: Any) -> Iterator[Any]:
    for frame in frames:
        yield frame.assign(x=local_property(None))


PROPERTIES = {
    "in a Python function": lambda s: (
        s.range(20).repartition(3).select(F.udf(local_property, StringType())("id").alias("x"))
    ),
    "after an aggregate": lambda s: (
        s.range(20).groupBy(F.expr("id % 3 k")).count().select(F.udf(local_property, StringType())("k").alias("x"))
    ),
    "in a batch": lambda s: s.range(20).repartition(3).mapInPandas(property_in_batches, "id long, x string"),
    "in groups": lambda s: (
        s.range(20)
        .groupBy(F.expr("id % 3 k"))
        .applyInPandas(lambda f: f.head(1).assign(x=local_property(None)), "id long, x string")
        .select("x")
    ),
}


@pytest.mark.parametrize("case", PROPERTIES)
def test_properties_of_the_thread_reach_tasks(spark: SparkSession, env: Environment, case: str) -> None:
    context = spark.sparkContext
    context.setLocalProperty("greeting", "hello")
    try:
        df = PROPERTIES[case](spark)
        rows = env.collect(df)
    finally:
        context.setLocalProperty("greeting", None)
    assert {row.x for row in rows} == {"hello"}
    assert context.getLocalProperty("spark.jobGroup.id") is None


def test_a_tag_of_the_user_reaches_every_job(spark: SparkSession, env: Environment) -> None:
    context = spark.sparkContext
    context.addJobTag("mine")
    try:
        env.collect(spark.range(100).groupBy(F.expr("id % 3 k")).count())
    finally:
        context.removeJobTag("mine")
    tracker = context._jsc.sc().statusTracker()
    tagged = set(tracker.getJobIdsForTag("mine"))
    own = {
        job
        for execution in env.last_job.vertices
        for job in tracker.getJobIdsForGroup(env.last_job.graphs.spark_job_group(execution.vertex))
    }
    assert own
    assert own <= tagged


@pytest.mark.parametrize("in_a_thread", [False, True], ids=["main thread", "a thread of the user's"])
def test_names_that_differ_in_case_are_resolved_by_the_session(
    spark: SparkSession, env: Environment, tmp_path: Path, *, in_a_thread: bool
) -> None:
    """Spark resolves names by its defaults in threads without an active session, such as those of Penstock."""
    for part in ("x", "y"):
        (tmp_path / f"p={part}").mkdir()
        pq.write_table(pa.table({"A": [1, 2], "a": [3, 4], "k": [5, 6]}), tmp_path / f"p={part}" / "f.parquet")
    with with_settings(spark, {"spark.sql.caseSensitive": "true"}):
        keys = spark.createDataFrame([("x", 5), ("q", 6)], "p string, k long")
        df = spark.read.parquet(str(tmp_path)).join(keys, ["p", "k"]).groupBy("A").agg(F.sum("a").alias("n"))
        expected = df.collect()
        if in_a_thread:
            with ThreadPoolExecutor(1) as pool:
                rows = pool.submit(env.collect, df).result()
        else:
            rows = env.collect(df)
    assert sorted(rows) == sorted(expected) == [(1, 3)]
    assert env.last_job is not None
    assert not [decision for decision in env.last_job.decisions if "its inference raised" in decision.reason]
    with with_settings(spark, {"spark.sql.caseSensitive": "true"}):
        assert "inference raised" not in str(env.explain(df).as_dict())
