"""Queries that DuckDB computes in a single task return the rows of plain Spark; Spark runs the others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import TaskContext
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

import penstock
from penstock import Environment
from penstock.decisions.log import DecisionKind
from penstock.duckdb import query as native_query
from penstock.duckdb.worker import query as query_module
from penstock.duckdb.worker.query import QueryFunction
from penstock.errors import JobError, RowsDifferError
from penstock.optimizer import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy
from penstock.scheduler.job import RECENT
from penstock.shadow.comparison import Engine, Verdict
from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF
from tests.duckdb.queries import query_with_join
from tests.generated.aggregates import OTHER, OTHER_ROWS, outcome, query, write_rows
from tests.support.equality import assert_same_rows
from tests.support.native import include_small_tables
from tests.support.stages import SINGLE_DUCKDB_TASK, computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.bridge.handles import PhysicalPlan
    from penstock.spark.run.exchange import StagedResult

SINGLE_TASK = {"execution.batch.adaptive.whole-query-threshold": 1, "execution.verify": True}
"""Every query is above the threshold; DuckDB is on by default in local mode. Every job verifies itself."""


@pytest.fixture
def env(spark: SparkSession) -> Environment:
    return Environment(spark, config=SINGLE_TASK, progress=False)


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
    """Return the choice of each native decision of the last job, and the fallback."""
    assert env.last_job is not None
    decisions = [decision for decision in env.last_job.decisions if decision.kind == "native"]
    return [(str(decision.chosen), str(decision.outcome.get("instead", ""))) for decision in decisions]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("benchmark", "least"), [("tpch", 22), pytest.param("tpcds", 96, marks=pytest.mark.slow)], ids=str
)
def test_benchmarks(spark: SparkSession, env: Environment, data: Path, benchmark: str, least: int) -> None:
    """DuckDB computes all queries of TPC-H in a single task, and most of TPC-DS."""
    for file in sorted((data / f"{benchmark}-0.1").glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    by_duckdb = 0
    for text in json.loads((data / "queries" / f"{benchmark}.json").read_text()).values():
        df = spark.sql(text)
        assert_same_rows(env.collect(df), df.collect())
        by_duckdb += choices(env) == [(SINGLE_DUCKDB_TASK, "")]
    assert by_duckdb >= least


@pytest.mark.thorough
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("make", [query, query_with_join], ids=["expressions", "queries"])
@pytest.mark.usefixtures("interpreted", "rows")
def test_generated(spark: SparkSession, env: Environment, ansi: bool, make: object) -> None:
    """For more, run ``python -m tests.generated.aggregates --one-task --queries 1000``."""
    assert callable(make)
    by_duckdb = 0
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower()}):
        for seed in range(40):
            text = make(seed)
            expected = outcome(spark.sql(text).collect)
            assert outcome(lambda text=text: env.collect(spark.sql(text))) == expected, text
            by_duckdb += computed_by_duckdb(env.last_job)
    assert by_duckdb >= 10


# A query, and whether DuckDB computes it in a single task; None if that depends on the mode.
QUERIES: dict[str, tuple[str, bool | None]] = {
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
        "SELECT * FROM (SELECT s, i8 FROM t LEFT SEMI JOIN t x USING (i8)) v JOIN (SELECT u_s FROM u) w ON s = u_s",
        True,
    ),
    "grouping sets": ("SELECT i8, s, count(*), grouping(s) FROM t GROUP BY GROUPING SETS ((i8), (s), ())", True),
    "several distinct counts": ("SELECT b, count(DISTINCT s), count(DISTINCT i32) FROM t GROUP BY b", True),
    "texts that look like names": ("SELECT s, max('scan_0 {scan} result_0 c1') FROM t GROUP BY s", True),
    "a sum that fails, of a group that a join drops": (
        "SELECT u_s, n FROM u JOIN (SELECT i8, sum(i64) n FROM t GROUP BY i8) ON i8 = u_i8 WHERE u_i8 = 1",
        True,
    ),
    "a condition whose parts fail for the same rows": (
        "SELECT s, sum(CASE WHEN i32 - i16 > 30 AND i32 - i16 <= 60 THEN 1 ELSE 0 END) FROM t GROUP BY s",
        True,
    ),
    "a condition whose parts fail for different rows": (
        "SELECT s, sum(CASE WHEN i32 - i16 > 30 AND i32 + i16 <= 60 THEN 1 ELSE 0 END) FROM t GROUP BY s",
        None,
    ),
    "a sum that is compared with a constant": (
        "SELECT b, sum(CASE WHEN i8 + 1Y < 10Y THEN 1 END), max(i16 * i8), min(i64 - i32) FROM t GROUP BY b",
        True,
    ),
    "a quotient by what is positive": (
        "SELECT s, count(*) FROM t WHERE CASE WHEN i16 > 0 THEN d5 / i16 > 1.2 END GROUP BY s",
        True,
    ),
    "a sum of a condition with a subquery, and no nulls": (
        "SELECT s, n FROM (SELECT s, count(*) n FROM t GROUP BY s) WHERE n > 0.5 * (SELECT max(u_d15) FROM u)",
        True,
    ),
    "tables that an inequality joins, and keys of others": (
        "SELECT b, count(*) FROM t JOIN u ON i8 = u_i8 JOIN (SELECT i16 k, s z FROM t) ON k = u_i16 AND z <> s GROUP BY b",
        True,
    ),
    "doubles that are rounded": (
        "SELECT s, avg(d5), CAST(avg(i16) / 64 AS decimal(11,6)), sum(CASE WHEN i8 / 3 > 1.5D THEN 1 END) FROM t GROUP BY s",
        True,
    ),
    "a row of no table": (
        "SELECT s, count(*) FROM t CROSS JOIN (SELECT (SELECT max(u_s) FROM u) m) WHERE m > s GROUP BY s",
        None,
    ),
    "no key": ("SELECT count(*) FROM t JOIN u ON i8 < u_i8", False),
    "nothing that is exchanged": ("SELECT s FROM t WHERE i8 > 0", False),
    "a random number": ("SELECT s, count(*) FROM t WHERE rand(1) < 0.5 GROUP BY s", False),
    "texts in upper and lower case": ("SELECT upper(s), lower(s), count(*) FROM t GROUP BY upper(s), lower(s)", True),
    "a function of Spark's": ("SELECT soundex(s), count(*) FROM t GROUP BY soundex(s)", False),
    "the user's own number of tasks": ("SELECT /*+ REPARTITION(3) */ s, count(*) FROM t GROUP BY s", True),
}
SPARK_AGAIN = {
    ("a division by zero", True),
    ("a subquery of several rows", True),
    ("a subquery of several rows", False),
    ("a sum that fails, of a group that a join drops", True),
    ("a condition whose parts fail for the same rows", True),
    ("a condition whose parts fail for the same rows", False),
    ("a sum that is compared with a constant", True),
    ("a sum that is compared with a constant", False),
}
"""Queries on which DuckDB fails in an ANSI mode, so that Spark computes them."""


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("case", QUERIES, ids=str)
@pytest.mark.usefixtures("interpreted", "rows")
def test_queries(spark: SparkSession, env: Environment, case: str, ansi: bool) -> None:
    text, is_native = QUERIES[case]
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower()}):
        expected = outcome(spark.sql(text).collect)
        assert outcome(lambda: env.collect(spark.sql(text))) == expected
    assert is_native in {None, computed_by_duckdb(env.last_job) or (case, ansi) in SPARK_AGAIN}


# Queries over rows without nulls, with maxima in the files' statistics; some fail in an ANSI mode or in both.
ERRORS = {
    "a sum of a group that a small table leaves out": (
        "SELECT n FROM p JOIN (SELECT k, sum(v) n FROM w GROUP BY k) USING (k) WHERE colour = 'red'"
    ),
    "a product of a group that a small table leaves out": (
        "SELECT n FROM p JOIN (SELECT k, sum(i32 * i32) n FROM w GROUP BY k) USING (k) WHERE colour = 'red'"
    ),
    "a window of a group that a small table leaves out": (
        "SELECT k, max(n) FROM p JOIN (SELECT k, sum(v) OVER (PARTITION BY k) n FROM w) USING (k) WHERE colour = 'red' GROUP BY k"
    ),
    "a condition, or what is true of all rows": "SELECT k, max(i32 * i32 > 30 OR k IS NOT NULL) FROM w GROUP BY k",
    "a condition, and what is true of no row": "SELECT k, max(i32 * i32 > 30 AND k < -5) FROM w GROUP BY k",
    "a cast, or what is true of all rows": "SELECT k, max(CAST(d AS decimal(5,2)) > 3 OR k IS NOT NULL) FROM w GROUP BY k",
    "a condition of groups, or what is true of all": (
        "SELECT k, sum(i32) FROM w GROUP BY k HAVING sum(i32) * sum(i32) * sum(i32) > 30 OR k IS NOT NULL"
    ),
    "a value in a list that fails": "SELECT k, max(i32 IN (i32 * i32, 5)) FROM w GROUP BY k",
    "no nulls, and nulls that are compared": (
        "SELECT k, max(none) a, min(none) b, max(i32 > 0) c FROM w GROUP BY k "
        "HAVING max(none) IS NOT NULL AND (max(none) <=> min(none)) = max(i32 > 0)"
    ),
    "a quotient behind a condition of texts": "SELECT k, sum(CASE WHEN s > 'abc' THEN i32 / k END) FROM w GROUP BY k",
    "a long sum": f"SELECT k, max({'(' * 40}i32{' * 2 + 1)' * 40}) FROM w GROUP BY k",
    "a sum of sums with a constant": "SELECT k, sum(i32 + 2000000000) FROM w GROUP BY k",
}


@pytest.fixture(scope="module")
def no_nulls(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("no-nulls")
    rows = "id % 1000 AS k, if(id % 1000 = 7, 9223372036854775807, 1) AS v, 2000000000 AS i32, 1000.00BD AS d, 'x' AS s"
    more = "CAST(NULL AS tinyint) AS none"
    spark.sql(f"SELECT {rows}, {more} FROM range(0, 20000, 1, 1)").write.parquet(str(folder / "w"))
    spark.sql("SELECT * FROM VALUES (1L, 'red'), (2L, 'blue') AS t(k, colour)").coalesce(1).write.parquet(
        str(folder / "p")
    )
    for name in ("w", "p"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield
    for name in ("w", "p"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("case", ERRORS, ids=str)
@pytest.mark.usefixtures("no_nulls")
def test_errors_are_seen(spark: SparkSession, env: Environment, case: str, ansi: bool) -> None:
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower()}):
        expected = outcome(spark.sql(ERRORS[case]).collect)
        assert outcome(lambda: env.collect(spark.sql(ERRORS[case]))) == expected


@pytest.mark.usefixtures("no_nulls")
def test_the_decision_has_the_fallback_if_spark_fails_too(spark: SparkSession, env: Environment) -> None:
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}), pytest.raises(JobError) as error:
        env.collect(spark.sql("SELECT k, sum(v) FROM w GROUP BY k"))
    assert isinstance(error.value.__cause__, ArithmeticException)
    assert env.last_job is not None
    (native_decision,) = [decision for decision in env.last_job.decisions if decision.kind is DecisionKind.NATIVE]
    assert native_decision.outcome["instead"] == "Spark computes it"
    assert "a sum that may not fit" in str(native_decision.outcome["because"])


@pytest.mark.thorough
def test_letters(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    """Each portable letter inside a word; and words whose case Spark must map."""
    ranges = [
        (0x1, 0xDE),
        (0xE0, 0x12F),
        (0x131, 0x148),
        (0x14A, 0x17F),
        (0x400, 0x52F),
        (0x620, 0x64A),
        (0x4E00, 0x4FFF),
    ]
    words = [(f"aB{chr(code)}Ab",) for first, last in ranges for code in range(first, last + 1)]
    text = "SELECT upper(x), lower(x), count(*) FROM words GROUP BY x"
    for more, instead in (("", ""), ("Straße", "Spark computes it"), ("ΛΟΓΟΣ", "Spark computes it")):
        df = spark.createDataFrame([*words, (more,)], "x string").coalesce(1)
        df.write.mode("overwrite").parquet(str(tmp_path))
        spark.read.parquet(str(tmp_path)).createOrReplaceTempView("words")
        assert_same_rows(env.collect(spark.sql(text)), spark.sql(text).collect())
        assert choices(env) == [(SINGLE_DUCKDB_TASK, instead)]
    spark.catalog.dropTempView("words")


def test_averages_that_are_ties(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    """Many averages of 32 or 160 prices are ties between two decimals."""
    prices = spark.range(0, 320_000, 1, 2).selectExpr(
        "id DIV if(id % 2 = 0, 64, 320) AS k",
        "id % 2 AS p",
        "CAST(pmod(hash(id), 2000000) / 100 AS decimal(7,2)) AS price",
    )
    prices.write.parquet(str(tmp_path / "prices"))
    df = spark.read.parquet(str(tmp_path / "prices")).groupBy("k", "p").agg({"price": "avg"})
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]


@pytest.mark.usefixtures("rows")
def test_a_single_task_computes_the_query(spark: SparkSession, env: Environment) -> None:
    """A task computes the query, another task reads its result."""
    env.collect(spark.sql("SELECT i8, count(u_s) FROM t JOIN u ON s = u_s GROUP BY i8 ORDER BY 1"))
    assert env.last_job is not None
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]
    (vertex,) = env.last_job.vertices
    assert vertex.tasks == 1
    assert "t, u" in vertex.vertex.name


# Queries of small tables, and whether DuckDB computes them: in local mode, an exchange costs more than that.
SMALL = {
    "SELECT b, count(*) FROM t GROUP BY b ORDER BY b": True,
    "SELECT b, count(*) FROM t JOIN (SELECT i8, max(i16) FROM t GROUP BY i8) USING (i8) GROUP BY b": True,
    "SELECT b, count(*) FROM t GROUP BY b ORDER BY b LIMIT 3": True,  # Spark exchanges rows once
    "SELECT b, count(*) FROM t JOIN u ON i8 = u_i8 GROUP BY b": True,  # Spark broadcasts u
    "SELECT b, i8 FROM t ORDER BY b, i8, i16 LIMIT 3": False,  # Spark exchanges no rows
    "SELECT i8 FROM t ORDER BY i8": False,
    "SELECT /*+ MERGE(u) */ b, count(*) FROM t JOIN u ON i8 = u_i8 GROUP BY b ORDER BY b": False,
    "SELECT b, skewness(i8) FROM t GROUP BY b ORDER BY b": False,  # an unsupported function
    "SELECT b, id, count(*) FROM t JOIN range(9) ON i8 = id GROUP BY b, id ORDER BY b, id": False,  # it reads a leaf that DuckDB cannot read
}


@pytest.mark.parametrize("text", SMALL)
@pytest.mark.usefixtures("rows")
def test_small_queries(spark: SparkSession, text: str) -> None:
    env = Environment(spark, progress=False)
    assert_same_rows(env.collect(spark.sql(text)), spark.sql(text).collect())
    assert env.last_job is not None
    decision, *_ = env.last_job.decisions
    assert decision.chosen == (SINGLE_DUCKDB_TASK if SMALL[text] else "handed to Spark whole")
    assert len(env.last_job.vertices) == int(SMALL[text])
    plan = str(env.explain(spark.sql(text)))
    assert ("one task of DuckDB computes" in plan) is SMALL[text]
    assert ("reads the rows that DuckDB computes in one task" in plan) is SMALL[text]
    assert ("Spark splits this source itself: DuckDB" in plan) is False


@pytest.mark.usefixtures("rows")
def test_a_small_query_with_duckdb_disabled(spark: SparkSession) -> None:
    env = Environment(spark, config={"execution.native": False}, progress=False)
    df = spark.sql("SELECT b, count(*) FROM t GROUP BY b ORDER BY b")
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == []


@pytest.mark.parametrize(
    "config", [{"execution.verify": True}, {"execution.shadow": "ROWS"}, {"execution.shadow": "REPORT"}], ids=str
)
@pytest.mark.parametrize("threshold", [None, 1], ids=["small", "large"])
@pytest.mark.usefixtures("rows")
def test_verification_does_not_change_the_engine(
    spark: SparkSession, config: dict[str, object], threshold: int | None
) -> None:
    size = {} if threshold is None else {"execution.batch.adaptive.whole-query-threshold": threshold}
    df = spark.sql("SELECT b, count(*) FROM t GROUP BY b ORDER BY b")
    expected = df.collect()
    plain, verified = (Environment(spark, config=size | more, progress=False) for more in ({}, config))
    for env in (plain, verified):
        assert_same_rows(env.collect(df), expected)
        assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]
    explanations = [
        str(decision.explanation)
        for decision in verified.last_job.decisions
        if decision.kind == "native" and decision.explanation
    ]
    assert ("does not check what DuckDB computes" in explanations[0]) is ("execution.verify" in config)
    if "execution.shadow" in config:
        (comparison,) = verified.last_job.report.comparisons
        assert (comparison.verdict, comparison.engine) == (Verdict.EQUAL, Engine.NATIVE)


@pytest.mark.usefixtures("rows", "in_task")
def test_a_lost_row_of_duckdb_is_detected(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    query_batches = query_module.query_batches
    monkeypatch.setattr(query_module, "query_batches", lambda *args: (batch.slice(1) for batch in query_batches(*args)))
    env = Environment(spark, progress=False, verify="rows")
    df = spark.sql("SELECT b, count(*) FROM t GROUP BY b ORDER BY b")
    with pytest.raises(RowsDifferError, match=f"{df.count() - 1} rows, plain Spark returns {df.count()}"):
        env.collect(df)


@pytest.mark.usefixtures("rows", "in_task")
def test_an_unread_part_of_the_result_is_detected(
    spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_ranges = native_query.exchange.read_ranges

    def without_the_last(result: StagedResult, ranges: Sequence[tuple[int, int]] | None) -> PhysicalPlan:
        return read_ranges(result, [(0, result.subpartitions - 1)] if ranges else ranges)

    monkeypatch.setattr(native_query.exchange, "read_ranges", without_the_last)
    with pytest.raises(JobError, match="VerificationError: the result of DuckDB for t must have"):
        env.collect(spark.sql("SELECT i32, i8, count(*) FROM t GROUP BY i32, i8"))


# Queries that DuckDB does not compute in a single task, and the reason.
DECLINED = {
    "SELECT i8, count(*) FROM t GROUP BY i8 UNION ALL SELECT id, count(*) FROM huge GROUP BY id": "also have to read",
    "SELECT id, count(*) FROM huge GROUP BY id": "it has operator Range",
    "SELECT b, skewness(i8) FROM t GROUP BY b": "it has aggregate Skewness",
    "SELECT b, kurtosis(i8) FROM t GROUP BY b ORDER BY b LIMIT 2": "it has aggregate Kurtosis",
    "SELECT b, approx_count_distinct(i8) FROM t GROUP BY b": "which each engine estimates differently",
    "SELECT /*+ MERGE(u) */ b, count(*) FROM t JOIN u ON i8 = u_i8 GROUP BY b": "it has a join hint",
    "SELECT i8 FROM t": "Spark exchanges no rows for it",
}


@pytest.mark.parametrize("text", DECLINED)
@pytest.mark.usefixtures("rows")
def test_reasons_of_declined_queries(spark: SparkSession, env: Environment, text: str) -> None:
    spark.range(100_000).createOrReplaceTempView("huge")
    assert_same_rows(env.collect(spark.sql(text)), spark.sql(text).collect())
    assert env.last_job is not None
    (decision,) = [record for record in env.last_job.decisions if record.kind == "native"]
    assert decision.chosen == "not in one task of DuckDB"
    assert DECLINED[text] in decision.reason
    assert "the query is not computed by one task of DuckDB" in str(decision.explanation)


class Nothing(StreamGraphOptimizationStrategy):
    """A user's strategy, which needs several vertices."""

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        del finished, context
        return False


@pytest.mark.usefixtures("rows")
def test_user_strategies_disable_the_single_task(spark: SparkSession) -> None:
    df = spark.sql("SELECT i8, count(*) FROM t GROUP BY i8")
    for strategies, by_duckdb in (([], True), ([Nothing], False)):
        env = Environment(spark, config=SINGLE_TASK, strategies=strategies, progress=False)
        assert_same_rows(env.collect(df), df.collect())
        assert computed_by_duckdb(env.last_job) is by_duckdb


def test_the_files_that_spark_reads(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    """Empty and hidden files are skipped, and names may have any characters."""
    folder = tmp_path / "a table, 100% full"
    spark.range(100).selectExpr("id", "id % 7 AS k").write.parquet(str(folder))
    for name in ("empty.parquet", "_hidden.parquet", ".other.parquet"):
        (folder / name).touch()
    df = spark.read.schema("id long, k long").parquet(str(folder)).groupBy("k").agg({"id": "max"})
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]


# Types and values of partition columns.
FOLDERS = {
    "int": "1, -7, null",
    "bigint": "9223372036854775807L, 0L",
    "string": "'a b', 'it''s', '50%', 'ä/ö', 'x=y', '7', null",
    "date": "DATE'2024-02-29', DATE'0001-01-01', null",
    "decimal(5,2)": "1.50BD, -999.99BD",
    "boolean": "true, false, null",
}
OF_FOLDERS = [
    "SELECT p, count(*), max(id) FROM v GROUP BY p",
    "SELECT k, count(*), max(p) FROM v WHERE p IS NOT NULL GROUP BY k",
    "SELECT count(*) FROM v JOIN (SELECT p, max(id) m FROM v GROUP BY p) w ON v.p = w.p AND id <= m",
    "SELECT k, p, count(*) FROM v WHERE id > 500 GROUP BY k, p",
]


@pytest.mark.parametrize("config", [SINGLE_TASK, OFF | {"execution.native": True}], ids=["single task", "many tasks"])
@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.usefixtures("interpreted")
def test_columns_of_folders(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, config: dict[str, object]
) -> None:
    include_small_tables(monkeypatch)
    values = f"SELECT posexplode(array({FOLDERS[kind]})) AS (n, p)"
    rows = spark.sql(f"SELECT id, id % 5 AS k, CAST(p AS {kind}) AS p FROM range(1000) JOIN ({values}) ON id % 7 >= n")
    rows.write.partitionBy("p").parquet(str(tmp_path / "t"))
    table = spark.read.schema(f"id long, k long, p {kind}").parquet(str(tmp_path / "t"))
    table.createOrReplaceTempView("v")
    env = Environment(spark, config=config, progress=False)
    by_duckdb = 0
    for text in OF_FOLDERS:
        assert_same_rows(env.collect(spark.sql(text)), spark.sql(text).collect())
        by_duckdb += computed_by_duckdb(env.last_job)
    assert by_duckdb >= 3


@pytest.mark.thorough
def test_columns_of_many_folders(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    spark.range(120).selectExpr("id", "id AS p").repartition(1).write.partitionBy("p").parquet(str(tmp_path / "t"))
    df = spark.read.parquet(str(tmp_path / "t")).groupBy("p").count()
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    assert "more than 100 folders of a table" in env.last_job.decisions.records[0].text


def test_a_file_that_is_read_twice(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    spark.range(0, 900, 1, 3).selectExpr("id", "id % 7 AS k").write.parquet(str(tmp_path / "t"))
    folder, (first, *_) = str(tmp_path / "t"), sorted((tmp_path / "t").glob("part-*"))
    for paths in ((folder, folder), (folder, str(first))):
        df = spark.read.parquet(*paths).groupBy("k").count().orderBy("k")
        assert_same_rows(env.collect(df), df.collect())
        assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]


@pytest.mark.usefixtures("interpreted")
def test_a_folder_of_two_partitions(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    spark.range(0, 900, 1, 3).selectExpr("id", "id % 7 AS k").write.parquet(str(tmp_path / "t"))
    schema = f"id BIGINT, k BIGINT, p INT) USING parquet PARTITIONED BY (p) LOCATION '{tmp_path / 'table'}'"
    spark.sql(f"CREATE TABLE twice ({schema}")
    try:
        for number in (1, 2):
            spark.sql(f"ALTER TABLE twice ADD PARTITION (p = {number}) LOCATION '{tmp_path / 't'}'")
        for columns in ("k", "p, k"):
            df = spark.sql(f"SELECT {columns}, count(*), sum(id) FROM twice GROUP BY {columns}")
            assert_same_rows(env.collect(df), df.collect())
            assert computed_by_duckdb(env.last_job)
    finally:
        spark.sql("DROP TABLE twice")


@pytest.mark.parametrize("config", [SINGLE_TASK, OFF | {"execution.native": True}], ids=["single task", "many tasks"])
def test_columns_whose_names_differ_in_case(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, object]
) -> None:
    include_small_tables(monkeypatch)
    env = Environment(spark, config=config, progress=False)
    spark.range(0, 900, 1, 3).selectExpr("id", "id % 7 AS K").write.parquet(str(tmp_path / "t" / "k=7"))
    with with_settings(spark, {"spark.sql.caseSensitive": "true"}):
        df = spark.read.parquet(str(tmp_path / "t")).groupBy("K", "k").count()
        assert_same_rows(env.collect(df), df.collect())


@pytest.mark.usefixtures("rows")
def test_a_failed_search_is_recorded(
    spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(facts: object) -> object:
        raise IndexError("no such column")

    monkeypatch.setattr(native_query, "_part", fail)
    df = spark.sql("SELECT i8, count(*) FROM t GROUP BY i8")
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    (decision,) = [record for record in env.last_job.decisions if record.kind == "native"]
    assert decision.reason == "the search for parts that it can compute failed: no such column"
    assert "Spark computes the query" in caplog.text


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    "config",
    [
        {"execution.native": False},
        {"parallelism.default": 2},
        {"execution.batch.adaptive.whole-query-threshold": 0},
    ],
    ids=str,
)
def test_user_options_override_the_single_task(spark: SparkSession, config: dict[str, object]) -> None:
    env = Environment(spark, config=SINGLE_TASK | config, progress=False)
    df = spark.sql("SELECT i8, count(*) FROM t GROUP BY i8")
    assert_same_rows(env.collect(df), df.collect())
    assert all(chosen != SINGLE_DUCKDB_TASK for chosen, _ in choices(env))


def test_a_delegated_query(spark: SparkSession, rows: Path) -> None:
    served = spark.newSession()
    for name in ("t", "u"):
        served.read.parquet(str(rows / name)).createOrReplaceTempView(name)
    text = "SELECT b, count(u_s), sum(small15) FROM t JOIN u ON i8 = u_i8 GROUP BY b"
    expected = served.sql(text).collect()
    with penstock.enabled(served, config=SINGLE_TASK):
        assert_same_rows(served.sql(text).collect(), expected)
    assert any(decision.chosen == SINGLE_DUCKDB_TASK for decision in RECENT[-1].decisions)


@pytest.mark.usefixtures("rows", "in_task")
def test_a_worker_that_dies(spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(QueryFunction):
        def __call__(self, batches: object) -> object:  # type: ignore[override]
            os._exit(7)

    monkeypatch.setattr(native_query, "QueryFunction", Dying)
    df = spark.sql("SELECT i8, count(*) FROM t GROUP BY i8")
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "Spark computes it")]


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize("adaptive", ["true", "false", "FALSE"])
def test_no_memory(spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch, adaptive: str) -> None:
    monkeypatch.setattr(native_query, "replace", lambda part, **resources: replace(part, **(resources | {"memory": 1})))
    with with_settings(spark, {"spark.sql.adaptive.enabled": adaptive}):
        df = spark.sql("SELECT i8, s, count(*) FROM t GROUP BY i8, s")
        assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "Spark computes it")]


def test_a_file_that_changes_after_planning(spark: SparkSession, env: Environment, tmp_path: Path) -> None:
    write_rows(spark, str(tmp_path / "t"))
    df = spark.read.parquet(str(tmp_path / "t")).groupBy("b").count()
    expected = df.collect()
    for file in (tmp_path / "t").glob("*.parquet"):
        os.utime(file, (1, 1))
    assert_same_rows(env.collect(df), expected)
    assert all(chosen != SINGLE_DUCKDB_TASK for chosen, _ in choices(env))


@pytest.mark.thorough
@pytest.mark.usefixtures("rows")
def test_a_function_of_the_user_has_several_tasks(spark: SparkSession, env: Environment) -> None:
    task = F.udf(lambda _: TaskContext.get().partitionId(), "int")  # type: ignore[union-attr]
    sums = spark.sql("SELECT i32, count(*) AS n FROM t GROUP BY i32")
    tasks = {row["task"] for row in env.collect(sums.select(task("n").alias("task")))}
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]
    assert len(tasks) > 1


@pytest.mark.usefixtures("rows")
def test_a_large_result_has_several_tasks(
    spark: SparkSession, env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_query, "_SINGLE_TASK_BYTES", 0)
    df = spark.sql(
        "SELECT soundex(s), n, count(*) FROM (SELECT s, i32, count(*) n FROM t GROUP BY s, i32) GROUP BY 1, 2"
    )
    assert_same_rows(env.collect(df), df.collect())
    assert choices(env) == [(SINGLE_DUCKDB_TASK, "")]
