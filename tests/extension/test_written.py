"""Sink options set the tasks, and so the files, of Spark's own writer, unless the query sets its number of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ArithmeticException, PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F

import penstock
from penstock.decisions.log import DecisionKind
from penstock.events import ExecutionState
from penstock.scheduler.job import RECENT, RUN_BY_SPARK
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.run.query_hook import DelegatedQuery
from tests.conftest import OFF
from tests.extension.row_level import RowLevelTables, row_level
from tests.support.equality import assert_same_rows
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.scheduler.job import Job

pytestmark = pytest.mark.usefixtures("interpreted")

__all__ = ["row_level"]

THREE = {"sink.parallelism": 3}
SMALL = {"sink.target-file-size": "1 kb"}
SEVERAL = {"execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task": "8 kb"}
"""A small volume, so that few rows have several tasks."""
ROWS = 4000
NUMBERS = itertools.count(1)


def grouped(spark: SparkSession) -> DataFrame:
    ids = spark.range(0, 2 * ROWS, 1, 4)
    return ids.groupBy((F.col("id") % ROWS).alias("id")).agg(F.count("*").alias("n"), F.max(F.col("id") % 4).alias("k"))


def run(spark: SparkSession, write: Callable[[], None], config: dict[str, Any]) -> tuple[Job, int]:
    """Write with options; return the job, and the number of tasks of Spark's last stage."""
    context = spark.sparkContext
    group = f"written {next(NUMBERS)}"
    context.setJobGroup(group, group)
    try:
        with penstock.enabled(spark, config=OFF | config):
            before = list(RECENT)
            write()
            (job,) = [job for job in RECENT if job not in before]
    finally:
        context._jsc.clearJobGroup()
    assert [decision.reason for decision in job.decisions if decision.chosen == RUN_BY_SPARK] == []
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = context.statusTracker()
    infos = [tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for info in infos if info for stage in info.stageIds]
    return job, max((stage.stageId, stage.numCompletedTasks) for stage in stages if stage and stage.numCompletedTasks)[
        1
    ]


def writer_decisions(job: Job) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the decisions for the writer, and their outcomes."""
    decisions = [decision for decision in job.decisions if decision.kind is DecisionKind.SINK_PARALLELISM]
    return [(str(decision.chosen), decision.reason, dict(decision.outcome or {})) for decision in decisions]


def parquet(df: DataFrame, path: str) -> None:
    df.write.parquet(path)


WRITES: dict[str, tuple[Callable[[DataFrame, str], None], int]] = {
    "files": (parquet, 3),
    "folders": (lambda df, path: df.write.partitionBy("k").json(path), 12),
    "folders and a null": (
        lambda df, path: df.withColumn("t", F.when(df.k > 0, F.lit("a"))).write.partitionBy("t", "k").orc(path),
        12,
    ),
    "csv": (lambda df, path: df.write.csv(path), 3),
    "a table": (lambda df, path: df.write.option("path", path).saveAsTable("written"), 3),
    "buckets": (
        lambda df, path: df.write.bucketBy(2, "id").sortBy("n").option("path", path).saveAsTable("written"),
        6,
    ),
    "folders of buckets": (
        lambda df, path: df.write.partitionBy("k").bucketBy(2, "id").option("path", path).saveAsTable("written"),
        24,
    ),
}
"""The write, and the maximum number of files of three tasks."""


@pytest.fixture
def written(spark: SparkSession) -> Iterator[None]:
    yield
    spark.sql("DROP TABLE IF EXISTS written")


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("name", WRITES)
def test_the_option_sets_the_tasks_of_the_writer(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write, max_files = WRITES[name]
    path = tmp_path / "t"
    job, tasks = run(spark, lambda: write(grouped(spark), str(path)), THREE)
    assert tasks == 3
    assert max_files - 3 < len(list(path.rglob("part-*"))) <= max_files
    (decision,) = writer_decisions(job)
    assert decision[:2] == ("3", "sink.parallelism requests 3 tasks for Spark's writer")
    assert decision[2]["tasks"] == 3
    kind = {"folders": "json", "csv": "csv", "folders and a null": "orc"}.get(name, "parquet")
    reader = spark.read.format(kind)
    if kind == "csv":
        reader = reader.schema("id long, n long, k long")
    assert_same_rows(reader.load(str(path)).select("id", "n", "k").collect(), grouped(spark).collect())


OWN: dict[str, tuple[dict[str, Any], str, dict[str, str]]] = {
    "the writer": ({}, "", {"sink.parallelism": "3"}),
    "the writer over the session": ({"sink.parallelism": 2}, "", {"sink.parallelism": "3"}),
    "the table": ({}, "OPTIONS ('sink.parallelism' '3')", {}),
    "the table over the session": ({"sink.parallelism": 2}, "OPTIONS ('sink.parallelism' '3')", {}),
    "its properties": ({}, "TBLPROPERTIES ('sink.parallelism' = '3', 'sink.rolling' = 'x')", {}),
}


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("name", OWN)
def test_options_of_a_target_override_the_session(spark: SparkSession, tmp_path: Path, name: str) -> None:
    config, clause, options = OWN[name]

    def write() -> None:
        if options:
            grouped(spark).write.options(**options).parquet(str(tmp_path / "t"))
        else:
            grouped(spark).createOrReplaceTempView("grouped")
            spark.sql("INSERT INTO written SELECT * FROM grouped")

    if not options:
        spark.sql(f"CREATE TABLE written (id long, n long, k long) USING parquet {clause}")
    job, tasks = run(spark, write, config)
    assert tasks == 3
    (decision,) = writer_decisions(job)
    assert decision[:2] == ("3", "sink.parallelism requests 3 tasks for Spark's writer")
    df = spark.table("written") if not options else spark.read.parquet(str(tmp_path / "t"))
    assert_same_rows(df.collect(), grouped(spark).collect())


def test_small_queries_with_writer_options_are_delegated(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.enabled(spark):
        before = list(RECENT)
        spark.range(10).repartition(2).write.parquet(str(tmp_path / "small"))
        assert list(RECENT) == before
        grouped(spark).write.option("sink.parallelism", 3).parquet(str(tmp_path / "t"))
        assert len([job for job in RECENT if job not in before]) == 1
    assert len(list((tmp_path / "t").glob("part-*"))) == 3


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], int, str]] = {
    "nothing": (lambda df: df, 3, "3"),
    "repartition": (lambda df: df.repartition(8), 8, "as the query says"),
    "repartition, then more": (
        lambda df: df.repartition(8).where("n > 0").select("id", "n", "k"),
        8,
        "as the query says",
    ),
    "coalesce": (lambda df: df.coalesce(1), 1, "as the query says"),
    "coalesce, then more": (lambda df: df.coalesce(2).withColumn("n", F.col("n") + 0), 2, "as the query says"),
    "by key": (lambda df: df.repartition(5, "k"), 5, "as the query says"),
    "by range": (lambda df: df.repartitionByRange(4, "id"), 4, "as the query says"),
    "a hint": (lambda df: penstock.with_parallelism(df, 6), 6, "as the query says"),
    "by key without a number": (lambda df: df.repartition("id"), 3, "3"),
    "an order": (lambda df: df.orderBy("id"), 3, "3"),
    "an order of partitions": (lambda df: df.repartition(5).sortWithinPartitions("id"), 5, "as the query says"),
    "an order of any partitions": (lambda df: df.sortWithinPartitions("id"), 3, "3"),
    "a union": (lambda df: df.where("k = 0").unionAll(df.where("k > 0")), 3, "3"),
    "an order and a limit": (lambda df: df.orderBy("id").limit(100), 1, "the tasks before the writer"),
}
"""The query, the number of writing tasks, and the decision, for the option value 3."""


@pytest.mark.parametrize("name", QUERIES)
def test_tasks_set_by_the_query_override_the_option(spark: SparkSession, tmp_path: Path, name: str) -> None:
    query, expected, chosen = QUERIES[name]
    path = str(tmp_path / "t")
    job, tasks = run(spark, lambda: parquet(query(grouped(spark)), path), THREE | SEVERAL)
    assert tasks == expected
    assert len(list((tmp_path / "t").glob("part-*"))) <= expected
    assert [decision[0] for decision in writer_decisions(job)] == [chosen]
    assert_same_rows(spark.read.parquet(path).collect(), query(grouped(spark)).collect())
    if name in {"an order", "an order and a limit"}:
        files = sorted((tmp_path / "t").glob("part-*"))
        ids = [row.id for file in files for row in spark.read.parquet(str(file)).collect()]
        assert ids == sorted(ids)


@pytest.mark.thorough
@pytest.mark.parametrize("folders", [(), ("k",)], ids=["files", "folders"])
def test_a_size_of_files_decides_the_tasks(spark: SparkSession, tmp_path: Path, folders: tuple[str, ...]) -> None:
    grouped(spark).write.parquet(str(tmp_path / "in"))

    def write(path: Path) -> None:
        spark.read.parquet(str(tmp_path / "in")).write.partitionBy(*folders).parquet(str(path))

    job, tasks = run(spark, lambda: write(tmp_path / "sized"), SMALL)
    ((chosen, reason, outcome),) = writer_decisions(job)
    assert (chosen, outcome["tasks"]) == ("by the size of files", tasks)
    assert reason.startswith("sink.target-file-size requests files of 1")
    _, fewer = run(spark, lambda: write(tmp_path / "large"), {"sink.target-file-size": "1 gb"})
    assert fewer == 1 < tasks
    files = list((tmp_path / "sized").rglob("part-*"))
    assert len(files) >= (8 if folders else tasks)
    assert len(list((tmp_path / "large").rglob("part-*"))) == (4 if folders else 1)
    for name in ("sized", "large"):
        df = spark.read.parquet(str(tmp_path / name)).select("id", "n", "k")
        assert_same_rows(df.collect(), grouped(spark).collect())


@pytest.mark.thorough
def test_statements_and_settings_of_a_session(spark: SparkSession, tmp_path: Path) -> None:
    grouped(spark).createOrReplaceTempView("groups")
    steps = {
        f"CREATE TABLE written USING parquet LOCATION '{tmp_path}/t' AS SELECT * FROM groups": 3,
        "INSERT INTO written SELECT id + 1, n, k FROM groups": 3,
        "INSERT OVERWRITE written SELECT * FROM groups WHERE id > 5": 3,
        f"INSERT OVERWRITE DIRECTORY '{tmp_path}/d' USING parquet SELECT * FROM groups": 3,
        "INSERT INTO written SELECT /*+ REPARTITION(2) */ * FROM groups": 2,
    }
    try:
        with with_settings(spark, {"spark.penstock.sink.parallelism": "3"}):
            for text, expected in steps.items():
                job, tasks = run(spark, lambda text=text: spark.sql(text), {})  # type: ignore[misc]
                assert tasks == expected, text
                assert len(writer_decisions(job)) == 1
        assert spark.table("written").count() == ROWS - 6 + ROWS
    finally:
        spark.sql("DROP TABLE IF EXISTS written")


@pytest.mark.thorough
def test_tables_of_other_catalogs(spark: SparkSession, row_level: RowLevelTables) -> None:
    """The target requires the rows of a k in a single task, which holds for the requested number of tasks."""
    table = row_level.make("written", "groups")
    rows = grouped(spark).select("id", "k", F.col("n").alias("v"))
    job, _ = run(spark, lambda: rows.writeTo(table).append(), THREE)
    assert row_level.tasks(table) == 3
    assert writer_decisions(job)[0][0] == "3"
    job, _ = run(spark, lambda: rows.writeTo(table).append(), SMALL)
    assert writer_decisions(job)[0][0] == "the tasks before the writer"
    assert len(row_level.rows(table)) == 40 + 2 * ROWS


def test_the_option_applies_only_to_written_rows(spark: SparkSession, tmp_path: Path) -> None:
    with penstock.enabled(spark, config=OFF | THREE):
        assert grouped(spark).repartition(8).rdd.getNumPartitions() == 8
        before = len(RECENT)
        assert grouped(spark).count() == ROWS
        (job,) = list(RECENT)[before:]
        assert writer_decisions(job) == []
    job, tasks = run(spark, lambda: parquet(grouped(spark), str(tmp_path / "t")), {})
    assert writer_decisions(job) == []
    assert tasks != 3


LARGE = {"execution.batch.adaptive.whole-query-threshold": 0}
"""Penstock runs all queries with a shuffle."""
SINGLE_TASK = {"execution.batch.adaptive.whole-query-threshold": 1}
WITHOUT_DIVISIONS = {"execution.native.exclude": "divide,integraldivide"}
"""Spark divides, above what DuckDB computes."""
"""DuckDB computes small queries."""


def failing(spark: SparkSession, folder: Path) -> DataFrame:
    """Return a query whose stages fail with an overflow."""
    tables = [str(folder / name) for name in ("a", "b")]
    for table in tables:
        spark.range(ROWS).write.mode("ignore").parquet(table)
    a, b = (spark.read.parquet(table) for table in tables)
    return a.join(b, "id").groupBy("id").agg(F.sum(F.expr(f"id * {2**62}")).alias("n"))


def filled(spark: SparkSession, folder: Path) -> str:
    """Write a table of three rows; return its path."""
    spark.range(3).write.parquet(str(folder / "target"))
    return str(folder / "target")


@pytest.mark.parametrize(
    "config",
    [pytest.param(OFF | LARGE, id="shuffled"), pytest.param(SINGLE_TASK, id="native", marks=pytest.mark.duckdb)],
)
@pytest.mark.parametrize("mode", ["overwrite", "error"])
def test_a_failing_query_leaves_the_old_rows(
    spark: SparkSession, tmp_path: Path, mode: str, config: dict[str, Any]
) -> None:
    """The command deletes old files and creates its folder before it requests rows."""
    df, before = failing(spark, tmp_path), list(RECENT)
    target = filled(spark, tmp_path) if mode == "overwrite" else str(tmp_path / "target")
    with (
        with_settings(spark, {"spark.sql.ansi.enabled": "true"}),
        penstock.enabled(spark, config=config),
        pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"),
    ):
        df.write.mode(mode).parquet(target)
    (job,) = [job for job in RECENT if job not in before]
    assert job.state is ExecutionState.FAILED
    uses_duckdb = any(
        decision.kind is DecisionKind.NATIVE and str(decision.chosen).startswith("DuckDB") for decision in job.decisions
    )
    assert uses_duckdb == (config is SINGLE_TASK)  # DuckDB fails, and Spark computes the stage
    if mode == "error":
        assert not (tmp_path / "target").exists()
    else:
        assert spark.read.parquet(target).count() == 3


POINT = "st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')"
ABOVE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sorted": lambda df: df.orderBy("v"),
    "sorted, projected": lambda df: df.orderBy(F.desc("k")).select("v", "k"),
    "grouped again": lambda df: df.groupBy("v").agg(F.max("k").alias("k")),
    "numbered": lambda df: df.withColumn("n", F.row_number().over(Window.partitionBy("v").orderBy("k"))),
    "with a type that Spark's cache does not support": lambda df: df.withColumn("g", F.expr(POINT)).orderBy("v"),
    "joined": lambda df: df.join(df.groupBy("k").count(), "k").groupBy("count").agg(F.max("v").alias("v")),
    "a sort of an aggregate over a join": lambda df: (
        df.sparkSession.table("numbers")
        .join(df.sparkSession.table("numbers").groupBy("k").count(), "k")
        .groupBy("k")
        .agg(F.sum(F.expr("1 / (count - 5)")).alias("v"))
        .orderBy("v")
    ),
}
"""Operators after a failing aggregate. A single task has all rows, so that Penstock needs no exchange, unlike Spark."""


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("mode", ["overwrite", "error"])
@pytest.mark.parametrize(
    "settings",
    [LARGE, LARGE | {"execution.native": False}, SINGLE_TASK],
    ids=["all", "without DuckDB", "DuckDB, in one task"],
)
def test_a_query_failing_in_a_stage_that_spark_divides_leaves_the_old_rows(
    spark: SparkSession, tmp_path: Path, mode: str, above: str, settings: dict[str, Any]
) -> None:
    spark.range(250).withColumn("k", F.col("id") % 50).write.parquet(str(tmp_path / "numbers"))
    numbers = spark.read.parquet(str(tmp_path / "numbers"))
    numbers.createOrReplaceTempView("numbers")
    df = ABOVE[above](numbers.groupBy("k").agg((F.sum("id") / (F.max("k") - 49)).alias("v")))
    target, before = filled(spark, tmp_path) if mode == "overwrite" else str(tmp_path / "target"), list(RECENT)
    persistent = set(spark.sparkContext._jsc.getPersistentRDDs())
    with (
        with_settings(spark, {"spark.sql.ansi.enabled": "true"}),
        penstock.enabled(spark, config=settings | WITHOUT_DIVISIONS),
        pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"),
    ):
        df.write.mode(mode).parquet(target)
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= persistent
    (job,) = [job for job in RECENT if job not in before]
    assert job.state is ExecutionState.FAILED
    assert computed_by_duckdb(job) == (settings is SINGLE_TASK)
    if mode == "error":
        assert not (tmp_path / "target").exists()
    else:
        assert spark.read.parquet(target).count() == 3


@pytest.fixture
def cached_queries(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """The queries whose last stage was computed before the write."""
    queries: list[DataFrame] = []
    compute = DelegatedQuery.compute_last_stage
    monkeypatch.setattr(
        DelegatedQuery, "compute_last_stage", lambda query, df: queries.append(df) or compute(query, df)
    )
    return queries


@pytest.mark.sample(2)
@pytest.mark.parametrize("value", ["sum(id)", POINT])
def test_rows_cached_for_a_write_are_written_and_dropped(
    spark: SparkSession, tmp_path: Path, cached_queries: list[DataFrame], value: str
) -> None:
    """Spark's cache does not support all types that can be written."""
    groups = (
        spark.range(250).groupBy((F.col("id") % 50).alias("k")).agg(F.sum("id").alias("n"), F.expr(value).alias("v"))
    )
    df = groups.orderBy(F.desc("n"))
    target, expected = filled(spark, tmp_path), df.collect()
    persistent = spark.sparkContext._jsc.getPersistentRDDs
    before = set(persistent())
    with penstock.enabled(spark, config=LARGE):
        df.write.mode("overwrite").parquet(target)
    assert len(cached_queries) == 1
    assert set(persistent()) <= before
    assert spark.read.parquet(target).collect() == expected


@pytest.mark.parametrize("setting", ["spark.sql.adaptive.enabled", "spark.sql.optimizer.plannedWrite.enabled"])
def test_rows_are_not_cached_if_spark_deletes_before_it_computes(
    spark: SparkSession, tmp_path: Path, cached_queries: list[DataFrame], setting: str
) -> None:
    df = spark.range(250).groupBy((F.col("id") % 50).alias("k")).agg(F.sum("id").alias("v")).orderBy(F.desc("v"))
    target = filled(spark, tmp_path)
    before = list(RECENT)
    with with_settings(spark, {setting: "false"}), penstock.enabled(spark, config=LARGE | {"parallelism.default": 2}):
        df.write.mode("overwrite").parquet(target)
    assert len([job for job in RECENT if job not in before]) == 1
    assert cached_queries == []
    assert spark.read.parquet(target).count() == 50


@pytest.mark.duckdb
@pytest.mark.sample(2)
@pytest.mark.parametrize(("value", "may_fail"), [("1000 div max(id)", True), ("max(id)", False)])
def test_duckdb_rows_are_cached_if_operators_above_may_fail(
    spark: SparkSession, tmp_path: Path, cached_queries: list[DataFrame], value: str, *, may_fail: bool
) -> None:
    spark.range(250).selectExpr("id", "id % 50 as k").write.parquet(str(tmp_path / "numbers"))
    df = spark.read.parquet(str(tmp_path / "numbers")).groupBy("k").agg(F.expr(value).alias("v")).orderBy("v", "k")
    target, expected = filled(spark, tmp_path), df.collect()
    config = SINGLE_TASK | WITHOUT_DIVISIONS
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}), penstock.enabled(spark, config=config):
        df.write.mode("overwrite").parquet(target)
    assert computed_by_duckdb(RECENT[-1])
    assert bool(cached_queries) == may_fail
    assert spark.read.parquet(target).collect() == expected


@pytest.mark.thorough
def test_a_failing_script_over_duckdb_rows_leaves_the_old_rows(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(250).selectExpr("id", "id % 50 as k").write.parquet(str(tmp_path / "numbers"))
    spark.read.parquet(str(tmp_path / "numbers")).createOrReplaceTempView("numbers")
    df = spark.sql(
        "select * from (select transform(k, v) using 'cat > /dev/null; exit 3' as (a string, b string)"
        " from (select k, max(id) as v from numbers group by k)) order by a"
    )
    target, before = filled(spark, tmp_path), list(RECENT)
    with penstock.enabled(spark, config=SINGLE_TASK), pytest.raises(Py4JJavaError, match="exited with status 3"):
        df.write.mode("overwrite").parquet(target)
    (job,) = [job for job in RECENT if job not in before]
    assert computed_by_duckdb(job)
    assert spark.read.parquet(target).count() == 3


@pytest.mark.thorough
def test_duckdb_rows_are_not_cached_for_empty_partition_texts(
    spark: SparkSession, tmp_path: Path, cached_queries: list[DataFrame]
) -> None:
    """Spark converts empty texts to nulls, which never fails."""
    spark.range(250).selectExpr("id", "if(id % 5 = 0, '', string(id % 5)) as k").write.parquet(str(tmp_path / "rows"))
    df = spark.read.parquet(str(tmp_path / "rows")).groupBy("k").agg(F.max("id").alias("v"))
    expected, target = df.collect(), filled(spark, tmp_path)
    with penstock.enabled(spark, config=SINGLE_TASK):
        df.write.mode("overwrite").partitionBy("k").parquet(target)
    assert computed_by_duckdb(RECENT[-1])
    assert cached_queries == []
    rows = spark.read.schema("v bigint, k string").parquet(target).select("k", "v")
    assert_same_rows(rows.collect(), [(row.k or None, row.v) for row in expected])


READERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "nothing": lambda cached: cached,
    "filter": lambda cached: cached.where("id > 0"),
    "group": lambda cached: cached.groupBy("id").agg(F.count("*").alias("n")),
    "another cached query": lambda cached: cached.where("id > 0").cache(),
    "metrics": lambda cached: cached.observe(f"seen {next(NUMBERS)}", F.count("*").alias("n")),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("is_served", [True, False], ids=["served", "not served"])
def test_a_failing_cached_query_leaves_the_old_rows(
    spark: SparkSession, tmp_path: Path, reader: str, *, is_served: bool
) -> None:
    """AQE materializes a cached query with stages as a stage; a query of Penstock is a single operator."""
    target = filled(spark, tmp_path)
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}):
        with penstock.enabled(spark, config=OFF | LARGE):
            cached = failing(spark, tmp_path).cache()
            assert "Penstock" in cached._jdf.queryExecution().executedPlan().toString()
            df = READERS[reader](cached)
        try:
            with (
                penstock.enabled(spark, config=OFF | LARGE) if is_served else nullcontext(),
                pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"),
            ):
                df.write.mode("overwrite").parquet(target)
        finally:
            spark.catalog.clearCache()
    assert spark.read.parquet(target).count() == 3


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
@pytest.mark.parametrize("has_shuffle", [True, False], ids=["beside a shuffle", "alone"])
def test_cached_rows_without_a_stage(spark: SparkSession, tmp_path: Path, mode: str, *, has_shuffle: bool) -> None:
    """AQE materializes them if the query has another stage; otherwise the command reads them, if it writes at all."""
    target = filled(spark, tmp_path)
    config = OFF | LARGE | {"parallelism.default": 2}  # so that queries without a shuffle are delegated, too
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}):
        outcomes = []
        for is_served in (False, True):
            with penstock.enabled(spark, config=config) if is_served else nullcontext():
                spark.range(10).write.mode("overwrite").parquet(str(tmp_path / "rows"))
                cached = spark.read.parquet(str(tmp_path / "rows")).selectExpr(f"id * {2**62} AS id").cache()
                df = cached.union(grouped(spark).select("n")) if has_shuffle else cached
                outcomes.append([outcome(partial(df.write.mode(mode).parquet, target))])
                spark.catalog.clearCache()
            outcomes[-1].append(outcome(lambda: spark.read.parquet(target).count()))
            spark.range(3).write.mode("overwrite").parquet(target)
    assert outcomes[0] == outcomes[1]


def outcome(run: Callable[[], Any]) -> Any:
    """Return the result of a call, or the condition of its error."""
    try:
        return run()
    except PySparkException as error:
        return error.getCondition()


def test_a_failing_insert_leaves_the_targets_of_the_other_inserts(spark: SparkSession, tmp_path: Path) -> None:
    failing(spark, tmp_path).createOrReplaceTempView("failing")
    spark.range(ROWS).createOrReplaceTempView("numbers")
    try:
        for name in ("first", "second"):
            spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{tmp_path / name}' AS SELECT 1L AS k, 2L AS n")
        with (
            with_settings(spark, {"spark.sql.ansi.enabled": "true"}),
            penstock.enabled(spark, config=OFF | LARGE),
            pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"),
        ):
            spark.sql(
                "FROM numbers INSERT OVERWRITE first SELECT id % 7, count(*) GROUP BY id % 7"
                f" INSERT OVERWRITE second SELECT id % 7, sum(id * {2**62}) GROUP BY id % 7"
            )
        assert [tuple(*spark.table(name).collect()) for name in ("first", "second")] == [(1, 2), (1, 2)]
    finally:
        for name in ("first", "second"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("setting", ["spark.sql.adaptive.enabled", "spark.sql.optimizer.plannedWrite.enabled"])
def test_a_skipped_write_without_stages_of_aqe_computes_no_rows(
    spark: SparkSession, tmp_path: Path, setting: str
) -> None:
    target = filled(spark, tmp_path)
    with (
        with_settings(spark, {"spark.sql.ansi.enabled": "true", setting: "false"}),
        penstock.enabled(spark, config=OFF | LARGE | {"execution.batch.adaptive.auto-parallelism.max-parallelism": 8}),
    ):
        failing(spark, tmp_path).write.mode("ignore").parquet(target)
    assert spark.read.parquet(target).count() == 3


@pytest.mark.parametrize("has_cached", [False, True], ids=["files", "cached rows"])
def test_aqe_coalesces_partitions_of_a_declined_write(spark: SparkSession, tmp_path: Path, *, has_cached: bool) -> None:
    spark.range(10).write.parquet(str(tmp_path / "more"))
    with with_settings(spark, {"spark.sql.shuffle.partitions": "20", "spark.sql.adaptive.enabled": "true"}):
        counts = spark.range(100).groupBy((F.col("id") % 50).alias("id")).count()
        df = counts.select("id").union(spark.read.parquet(str(tmp_path / "more")))
        files = []
        for name, is_served in (("plain", False), ("served", True)):
            written, before = df, len(RECENT)
            if has_cached:
                with penstock.enabled(spark, config=OFF | LARGE):
                    written = df.union(grouped(spark).select("id").where("id < 5").cache())
            with penstock.enabled(spark) if is_served else nullcontext():
                written.write.parquet(str(tmp_path / name))
            spark.catalog.clearCache()
            assert len(RECENT) == before + has_cached
            files.append(len(list((tmp_path / name).glob("part-*"))))
    assert files[0] == files[1] < 20
