"""Queries that one task of DuckDB computes: rows as plain Spark's, and Spark wherever it cannot."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import penstock
from penstock import Environment
from penstock.native.query import NativeQueryStep
from penstock.scheduler.job import RECENT
from penstock.spark import native_query
from penstock.spark.dataframes import with_settings
from tests.equality import assert_same_rows
from tests.native.expressions import OTHER, OTHER_ROWS, is_native, outcome, query, write_rows
from tests.native.queries import whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ONE_TASK = {"execution.batch.adaptive.whole-query-threshold": 1}
"""Every query is large enough; that DuckDB computes it in local mode is the default."""


@pytest.fixture
def env(spark: SparkSession) -> Environment:
    return Environment(spark, config=ONE_TASK, progress=False)


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(spark, str(folder / "t"))
    write_rows(spark, str(folder / "u"), 2, OTHER_ROWS, OTHER)
    for name in ("t", "u"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield folder
    for name in ("t", "u"):
        spark.catalog.dropTempView(name)


def choices(env: Environment) -> list[tuple[str, str]]:
    """Return what the last job's decisions say of DuckDB: what was chosen, and what came instead."""
    assert env.last_job is not None
    found = [one for one in env.last_job.decisions if one.kind == "native"]
    return [(str(one.chosen), str(one.outcome.get("instead", ""))) for one in found]


@pytest.mark.parametrize(
    ("benchmark", "least"), [("tpch", 22), pytest.param("tpcds", 70, marks=pytest.mark.slow)], ids=str
)
def test_benchmarks(spark: SparkSession, env: Environment, data: Path, benchmark: str, least: int) -> None:
    for file in sorted((data / f"{benchmark}-0.1").glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    by_duckdb = 0
    for text in json.loads((data / "queries" / f"{benchmark}.json").read_text()).values():
        df = spark.sql(text)
        assert_same_rows(env.collect(df), df.collect())
        by_duckdb += choices(env) == [("DuckDB, in one task", "")]
    assert by_duckdb >= least


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("make", [query, whole], ids=["expressions", "queries"])
@pytest.mark.usefixtures("interpreted", "rows")
def test_generated(spark: SparkSession, env: Environment, ansi: bool, make: object) -> None:
    """More of them: ``python -m tests.native.expressions --one-task --queries 1000``."""
    assert callable(make)
    by_duckdb = 0
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower()}):
        for seed in range(40):
            text = make(seed)
            expected = outcome(spark.sql(text).collect)
            assert outcome(lambda text=text: env.collect(spark.sql(text))) == expected, text
            by_duckdb += is_native(env)
    assert by_duckdb >= 10


# A query, and whether one task computes it.
QUERIES = {
    "an average that is a tie": ("SELECT b, avg(d5), avg(small15) FROM t GROUP BY b", True),
    "a quotient": ("SELECT b, sum(small15) / count(*), sum(small15) / 3 FROM t GROUP BY b", True),
    "a division by zero": ("SELECT b, sum(small15) / (count(i8) - count(i8)) FROM t GROUP BY b", True),
    "a subquery of several rows": ("SELECT s, count(*) FROM t WHERE i8 = (SELECT u_i8 FROM u) GROUP BY s", True),
    "NOT IN": ("SELECT s, count(*) FROM t WHERE i8 NOT IN (SELECT u_i8 FROM u) GROUP BY s", True),
    "EXISTS, or something else": (
        "SELECT s, count(*) FROM t WHERE EXISTS (SELECT 1 FROM u WHERE i8 = u_i8) OR i8 > 5 GROUP BY s",
        True,
    ),
    "a semi join below an inner join, and columns in another order": (
        "SELECT v.*, u_s FROM (SELECT s, i8 FROM t LEFT SEMI JOIN t x USING (i8)) v JOIN u ON s = u_s "
        "UNION ALL SELECT s, i8, s FROM t WHERE b",
        True,
    ),
    "grouping sets": ("SELECT i8, s, count(*), grouping(s) FROM t GROUP BY GROUPING SETS ((i8), (s), ())", True),
    "several distinct counts": ("SELECT b, count(DISTINCT s), count(DISTINCT i32) FROM t GROUP BY b", True),
    "texts that look like names": ("SELECT s, max('scan_0 {scan} result_0 c1') FROM t GROUP BY s", True),
    "no key": ("SELECT count(*) FROM t JOIN u ON i8 < u_i8", False),
    "nothing that is exchanged": ("SELECT s FROM t WHERE i8 > 0", False),
    "a random number": ("SELECT s, count(*) FROM t WHERE rand(1) < 0.5 GROUP BY s", False),
    "a function of Spark's": ("SELECT upper(s), count(*) FROM t GROUP BY upper(s)", False),
    "sums of floating-point numbers": ("SELECT s, sum(f) FROM t GROUP BY s", False),
    "the user's own number of tasks": ("SELECT /*+ REPARTITION(3) */ s, count(*) FROM t GROUP BY s", True),
}


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("case", QUERIES, ids=str)
@pytest.mark.usefixtures("interpreted", "rows")
def test_queries(spark: SparkSession, env: Environment, case: str, ansi: bool) -> None:
    text, can_be = QUERIES[case]
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower()}):
        expected = outcome(spark.sql(text).collect)
        assert outcome(lambda: env.collect(spark.sql(text))) == expected
    assert bool(choices(env)) == can_be


@pytest.mark.usefixtures("rows")
def test_one_task_runs_it(spark: SparkSession, env: Environment) -> None:
    """Measured on Spark: a task computes the query, another reads its result."""
    env.collect(spark.sql("SELECT i8, count(u_s) FROM t JOIN u ON s = u_s GROUP BY i8 ORDER BY 1"))
    assert env.last_job is not None
    assert choices(env) == [("DuckDB, in one task", "")]
    (vertex,) = env.last_job.vertices
    assert vertex.tasks == 1
    assert "t, u" in vertex.vertex.name


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    "config",
    [
        {"execution.native": False},
        {"execution.verify": True},
        {"parallelism.default": 2},
        {"execution.batch.adaptive.whole-query-threshold": 0},
    ],
    ids=str,
)
def test_what_the_user_says_comes_first(spark: SparkSession, config: dict[str, object]) -> None:
    env = Environment(spark, config=ONE_TASK | config, progress=False)
    df = spark.sql("SELECT i8, count(*) FROM t GROUP BY i8")
    assert_same_rows(env.collect(df), df.collect())
    assert all(chosen != "DuckDB, in one task" for chosen, _ in choices(env))


def test_a_session_that_is_served(spark: SparkSession, rows: Path) -> None:
    served = spark.newSession()
    for name in ("t", "u"):
        served.read.parquet(str(rows / name)).createOrReplaceTempView(name)
    text = "SELECT b, count(u_s), sum(small15) FROM t JOIN u ON i8 = u_i8 GROUP BY b"
    expected = served.sql(text).collect()
    with penstock.enabled(served, config=ONE_TASK):
        assert_same_rows(served.sql(text).collect(), expected)
    assert any(one.chosen == "DuckDB, in one task" for one in RECENT[-1].decisions)


@pytest.mark.usefixtures("rows")
def test_a_worker_that_dies(spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(NativeQueryStep):
        def __call__(self, batches: object) -> object:  # type: ignore[override]
            os._exit(7)

    monkeypatch.setattr(native_query, "NativeQueryStep", Dying)
    df = spark.sql("SELECT i8, count(*) FROM t GROUP BY i8")
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [("DuckDB, in one task", "Spark computes it")]


@pytest.mark.usefixtures("rows")
def test_no_memory(spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny(*given: object) -> NativeQueryStep:
        sql, results, columns, tables, _, threads = given
        return NativeQueryStep(sql, results, columns, tables, 1, threads)  # type: ignore[arg-type]

    monkeypatch.setattr(native_query, "NativeQueryStep", tiny)
    df = spark.sql("SELECT i8, s, count(*) FROM t GROUP BY i8, s")
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [("DuckDB, in one task", "Spark computes it")]


def test_a_file_that_changes_after_planning(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    write_rows(spark, str(tmp_path / "t"))
    df = spark.read.parquet(str(tmp_path / "t")).groupBy("b").count()
    expected = df.collect()
    for file in (tmp_path / "t").glob("*.parquet"):
        os.utime(file, (1, 1))
    assert_same_rows(env.collect(df), expected)
    assert all(chosen != "DuckDB, in one task" for chosen, _ in choices(env))


@pytest.mark.usefixtures("rows")
def test_a_large_result_has_several_tasks(
    spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_query, "_OF_ONE_TASK", 0)
    df = spark.sql("SELECT upper(s), n, count(*) FROM (SELECT s, i32, count(*) n FROM t GROUP BY s, i32) GROUP BY 1, 2")
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [("DuckDB, in one task", "")]
