"""Leaves that DuckDB computes return the rows of plain Spark; Spark's own plan runs otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Environment
from penstock.duckdb import failures as native_failures
from penstock.duckdb import parts as native_parts
from penstock.duckdb.worker.worker import PartFunction
from penstock.errors import JobError
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.run import exchange, filters
from tests.conftest import OFF
from tests.generated.aggregates import OTHER, OTHER_ROWS, outcome, query, write_rows
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively, include_small_tables
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NATIVE = {"execution.native": True}


@pytest.fixture(scope="module")
def native(spark: SparkSession) -> Iterator[Environment]:
    with pytest.MonkeyPatch.context() as patch:
        include_small_tables(patch)
        yield Environment(spark, config=OFF | NATIVE, progress=False)


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("rows")
    write_rows(spark, str(folder / "t"))
    write_rows(spark, str(folder / "u"), 2, OTHER_ROWS, OTHER)
    for table in ("t", "u"):
        spark.read.parquet(str(folder / table)).createOrReplaceTempView(table)
    yield str(folder / "t")
    for table in ("t", "u"):
        spark.catalog.dropTempView(table)


def reasons(env: Environment) -> list[tuple[str, str]]:
    """Return the choice and the reason for each leaf of the last job."""
    assert env.last_job is not None
    return [(str(decision.chosen), decision.reason) for decision in env.last_job.decisions if decision.kind == "native"]


def tpch(spark: SparkSession, data: Path, number: int) -> DataFrame:
    for file in sorted((data / "tpch-0.1").glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    return spark.sql(json.loads((data / "queries" / "tpch.json").read_text())[str(number)])


@pytest.mark.parametrize("number", range(1, 23))
def test_tpch(spark: SparkSession, native: Environment, data: Path, number: int) -> None:
    df = tpch(spark, data, number)
    assert_same_rows(native.collect(df), df.collect())
    assert computed_by_duckdb(native.last_job) or number != 1


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", ["tpch", "tpcds"])
def test_leaves_that_would_not_pay(
    spark: SparkSession, native: Environment, data: Path, monkeypatch: pytest.MonkeyPatch, benchmark: str
) -> None:
    """All queries, with every leaf that DuckDB supports."""
    compute_all_natively(monkeypatch)
    for file in sorted((data / f"{benchmark}-0.1").glob("*.parquet")):
        spark.read.parquet(str(file)).createOrReplaceTempView(file.stem)
    by_duckdb = 0
    for text in json.loads((data / "queries" / f"{benchmark}.json").read_text()).values():
        df = spark.sql(text)
        assert_same_rows(native.collect(df), df.collect())
        by_duckdb += computed_by_duckdb(native.last_job)
    assert by_duckdb >= {"tpch": 15, "tpcds": 60}[benchmark]


@pytest.mark.thorough
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.usefixtures("interpreted", "rows")
def test_generated_expressions(spark: SparkSession, native: Environment, ansi: bool) -> None:
    """For more, run ``python -m tests.generated.aggregates --queries 1000``."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        by_duckdb = 0
        for seed in range(40):
            text = query(seed)
            expected = outcome(spark.sql(text).collect)
            assert outcome(lambda text=text: native.collect(spark.sql(text))) == expected, text
            by_duckdb += computed_by_duckdb(native.last_job)
        assert by_duckdb >= 10
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


DECLINED = {
    "an aggregate that DuckDB rounds differently": ("SELECT skewness(f) FROM t", "aggregate Skewness"),
    "an approximate count": ("SELECT approx_count_distinct(i8) FROM t", "aggregate HyperLogLogPlusPlus"),
    "unsupported arithmetic": ("SELECT max(small15 % 3.0BD) FROM t", "expression Remainder"),
    "an unsupported expression": ("SELECT max(soundex(s)) FROM t", "a function that DuckDB does not have: soundex"),
    "another collation": ("SELECT max(s COLLATE UTF8_LCASE) FROM t", "type string collate UTF8_LCASE"),
    "a distinct count of two": ("SELECT count(distinct s), count(distinct i32) FROM t", "operator ExpandExec"),
    "a pattern that is not constant": (
        r"SELECT count(*) FROM t WHERE s LIKE concat(s, '%')",
        "a condition that may fail",
    ),
    "a cast to text": ("SELECT max(CAST(f AS string)) FROM t", "the text of a floating-point number"),
    "a failing value of which only nulls count": (
        "SELECT count(CASE WHEN CAST(small15 AS decimal(38,2)) + CAST(small15 AS decimal(38,2)) > 0 THEN b END) FROM t",
        "a condition that may fail",
    ),
    "a day that no calendar had": (
        "SELECT count(i8) FROM t WHERE day <=> date'1582-10-10'",
        "a day between the Julian and the Gregorian calendar",
    ),
    "many rows that stay": ("SELECT s FROM t WHERE i32 > 0 ORDER BY s", "operator"),
}


@pytest.mark.parametrize("case", DECLINED, ids=str)
@pytest.mark.usefixtures("interpreted", "rows")
def test_unsupported_expressions_are_declined(spark: SparkSession, native: Environment, case: str) -> None:
    text, expected = DECLINED[case]
    df = spark.sql(text)
    assert_same_rows(native.collect(df), df.collect())
    assert reasons(native)
    assert all(chosen == "Spark" and reason.startswith(expected) for chosen, reason in reasons(native))


@pytest.mark.usefixtures("interpreted", "rows")
def test_a_failing_value_of_dropped_rows_is_declined(spark: SparkSession, native: Environment) -> None:
    df = spark.sql("SELECT max(n) FROM (SELECT CAST(i8 AS int) * i16 AS n, s FROM t) JOIN u ON s = u_s")
    assert_same_rows(native.collect(df), df.collect())
    expected = "a value that may fail, of a row that may be dropped"
    assert any(chosen == "Spark" and reason.startswith(expected) for chosen, reason in reasons(native))


@pytest.mark.usefixtures("interpreted", "rows")
def test_a_scan_with_an_unsupported_filter_is_declined(
    spark: SparkSession, native: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's Parquet filter matches no row of that day, so DuckDB must not read the file."""
    compute_all_natively(monkeypatch)
    df = spark.sql("SELECT i8, max(s) FROM t WHERE day = date'1582-10-10' GROUP BY i8")
    assert_same_rows(native.collect(df), df.collect())
    expected = "a day between the Julian and the Gregorian calendar"
    assert all(chosen == "Spark" and reason.startswith(expected) for chosen, reason in reasons(native))


@pytest.mark.usefixtures("interpreted")
def test_a_sum_that_may_overflow_falls_back(spark: SparkSession, native: Environment, rows: str) -> None:
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            text = "SELECT sum(i64), max(small15) FROM t"
            assert outcome(lambda text=text: native.collect(spark.sql(text))) == outcome(spark.sql(text).collect)
            assert [chosen for chosen, _ in reasons(native)] == ["Spark"]
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
    assert rows


# The aggregates, the join, and the reason why Spark computes it, if it does.
JOINED = {
    "inner": ("count(*), max(u_day)", "t JOIN u ON i8 = u_i8", None),
    "outer": ("count(*), count(u_s)", "t LEFT JOIN u ON s = u_s AND i8 > u_i8", None),
    "build side first": ("count(*), max(s)", "u RIGHT JOIN t ON i8 = u_i8", None),
    "semi": ("sum(small15)", "t LEFT SEMI JOIN u ON day = u_day", None),
    "anti": ("sum(small15)", "t LEFT ANTI JOIN u ON i64 = u_i64 AND b = u_b", None),
    "an empty side": ("count(*)", "t JOIN (SELECT * FROM u WHERE u_s = 'none') x ON s = u_s", None),
    "a side of keys only": ("count(*)", "t JOIN (SELECT u_s FROM u) x ON s = u_s", None),
    "two joins": ("count(*)", "t JOIN u ON i8 = u_i8 JOIN (SELECT u_s AS y FROM u) x ON s = y", None),
    "keys of floating-point numbers": ("count(*)", "t JOIN u ON f = u_f", None),
    "NOT IN": ("count(*)", "t WHERE i8 NOT IN (SELECT u_i8 FROM u)", "NOT IN"),
    "EXISTS, or something else": (
        "count(*)",
        "t WHERE EXISTS (SELECT 1 FROM u WHERE i8 = u_i8) OR i8 > 5",
        "a join of the kind ExistenceJoin",
    ),
    "a condition that may fail": (
        "count(*)",
        "t JOIN u ON s = u_s AND i8 + 1L > 5L",
        "a condition that may fail",
    ),
}


@pytest.mark.parametrize("case", JOINED, ids=str)
@pytest.mark.usefixtures("interpreted", "rows")
def test_joins_with_broadcast_sides(spark: SparkSession, native: Environment, case: str) -> None:
    aggregates, tables, expected_reason = JOINED[case]
    df = spark.sql(f"SELECT b, {aggregates} FROM {tables} GROUP BY b")
    assert_same_rows(native.collect(df), df.collect())
    choices = [choice for choice in reasons(native) if expected_reason is None or choice[1].startswith(expected_reason)]
    assert {chosen for chosen, _ in choices} == {"DuckDB" if expected_reason is None else "Spark"}, reasons(native)


@pytest.mark.usefixtures("interpreted")
def test_metadata_columns_of_files_are_declined(spark: SparkSession, native: Environment, rows: str) -> None:
    df = spark.read.parquet(rows).groupBy("b").agg({"_metadata.file_size": "max"})
    assert_same_rows(native.collect(df), df.collect())
    assert reasons(native) == [("Spark", "metadata columns of files")]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("value", ["true", " TRUE"])
def test_columns_matched_by_field_ids_are_declined(
    spark: SparkSession, native: Environment, rows: str, value: str
) -> None:
    with with_settings(spark, {"spark.sql.parquet.fieldId.read.enabled": value}):
        df = counted(spark, rows)
        assert_same_rows(native.collect(df), df.collect())
        assert reasons(native) == [("Spark", "columns that are matched by their field ids")]


@pytest.mark.thorough
def test_a_filter_of_many_keys_of_another_table(spark: SparkSession, data: Path) -> None:
    """DuckDB has no Bloom filter, and joins the keys instead."""
    config = OFF | NATIVE | {"table.optimizer.dynamic-filtering.exact-keys": 1}
    env = Environment(spark, config=config, progress=False)
    df = tpch(spark, data, 17)
    assert_same_rows(env.collect(df), df.collect())
    assert [chosen for chosen, _ in reasons(env)].count("DuckDB") >= 1
    assert not any(reason.startswith("a Bloom filter") for _, reason in reasons(env))


@pytest.mark.thorough
def test_too_many_keys_of_another_table_are_declined(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "MAX_ROWS", 0)
    config = OFF | NATIVE | {"table.optimizer.dynamic-filtering.exact-keys": 1}
    env = Environment(spark, config=config, progress=False)
    df = tpch(spark, data, 17)
    assert_same_rows(env.collect(df), df.collect())
    assert any(reason.startswith("a Bloom filter of the keys of another table") for _, reason in reasons(env))


# Queries over exchanged columns, and whether DuckDB computes them.
EXCHANGED = {
    "inner": ("SELECT i8, u_s, s FROM t JOIN u ON i8 = u_i8", True),
    "left outer": ("SELECT i64, u_s, s FROM t LEFT JOIN u ON i64 = u_i64 AND u_s > s", True),
    "right outer": ("SELECT i64, u_s, s FROM t RIGHT JOIN u ON i64 = u_i64", True),
    "full outer": ("SELECT i64, u_i64, u_s, s FROM t FULL JOIN u ON i64 = u_i64", True),
    "semi": ("SELECT i64, small15 FROM t LEFT SEMI JOIN u ON i64 = u_i64 AND b = u_b", True),
    "anti": ("SELECT day, small15 FROM t LEFT ANTI JOIN u ON day = u_day", True),
    "decimal keys": ("SELECT d5, s, u_s FROM t JOIN u ON d5 = u_d5", True),
    "several keys": ("SELECT d5, s, u_s FROM t JOIN u ON i16 = u_i16 AND b = u_b AND day = u_day", True),
    "a result that is read twice": (
        "WITH x AS (SELECT i64, max(small15) m FROM t GROUP BY i64) SELECT a.i64, a.m, b.m n FROM x a JOIN x b ON a.i64 = b.i64",
        True,
    ),
    "an outer join with a condition on a single side": (
        "SELECT i64, u_s, s FROM t LEFT JOIN u ON i64 = u_i64 AND s IN ('a', 'b')",
        False,
    ),
    "an inner join with a condition on a single side": (
        "SELECT i64, u_s, s FROM t JOIN u ON i64 = u_i64 AND (s < u_s OR i8 = 1)",
        True,
    ),
    "null-safe keys": ("SELECT i64, s, u_s FROM t JOIN u ON i64 <=> u_i64", False),
    "text keys": ("SELECT s, u_i64 FROM t JOIN u ON s = u_s", False),
    "sums by whole numbers": ("SELECT i8, count(*), sum(small15), min(day), max(s), sum(i16) FROM t GROUP BY i8", True),
    "averages of decimals": ("SELECT i16, avg(i32), avg(small15) FROM t GROUP BY i16", False),
    "averages of whole numbers": ("SELECT i16, avg(i32), sum(i8) FROM t GROUP BY i16", True),
    "sums by day, of which some are left": ("SELECT day, count(s) AS n FROM t GROUP BY day HAVING n > 1", True),
    "distinct rows": ("SELECT DISTINCT i32, b FROM t", True),
    "sums over a join": ("SELECT i64, count(u_s), sum(small15) FROM t JOIN u ON i64 = u_i64 GROUP BY i64", True),
    "sums over a join by another column, in a single task": (
        "SELECT i16, count(u_s) FROM t JOIN u ON i64 = u_i64 GROUP BY i16",
        False,
    ),
    "a distinct count": ("SELECT i8, count(DISTINCT day), count(*) FROM t GROUP BY i8", False),
    "sums of sums": ("SELECT n, count(*) FROM (SELECT i32, count(*) n FROM t GROUP BY i32) GROUP BY n", True),
}


@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("case", EXCHANGED, ids=str)
@pytest.mark.usefixtures("interpreted", "rows")
def test_operators_over_exchanged_columns(
    spark: SparkSession, native: Environment, monkeypatch: pytest.MonkeyPatch, case: str, ansi: bool
) -> None:
    """With another exchange, so that the vertex does not end the job."""
    compute_all_natively(monkeypatch)
    text, is_native = EXCHANGED[case]
    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.ansi.enabled": str(ansi).lower()}
    with with_settings(spark, settings):
        df = spark.sql(text)
        df = df.repartition(3, df.columns[0])
        assert_same_rows(native.collect(df), df.collect())
    assert native.last_job is not None
    by_duckdb = [
        decision.explanation.sentence
        for decision in native.last_job.decisions
        if decision.kind == "native" and decision.chosen == "DuckDB" and decision.explanation
    ]
    assert any(sentence.startswith("what was exchanged") for sentence in by_duckdb) == is_native, by_duckdb


@pytest.mark.thorough
def test_exchanged_columns_have_the_declared_partitioning(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every exchanged row is verified, including joins of a columnar side with a row side."""
    compute_all_natively(monkeypatch)
    env = Environment(spark, config=OFF | NATIVE, progress=False)
    for number in (3, 9, 13, 18, 21):
        df = tpch(spark, data, number)
        assert_same_rows(env.collect(df), df.collect())
        assert computed_by_duckdb(env.last_job)


def test_unread_exchanged_columns_are_detected(
    spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB reads the exchange itself, so its rows are counted before."""
    compute_all_natively(monkeypatch)
    env = Environment(spark, config=OFF | NATIVE, progress=False)
    read_ranges = exchange.read_ranges

    def without_the_last(result: exchange.StagedResult, ranges: Any) -> Any:
        return read_ranges(result, ranges and [*ranges[:-1], (ranges[-1][0], max(ranges[-1][1] - 1, ranges[-1][0]))])

    df = tpch(spark, data, 3)
    monkeypatch.setattr(exchange, "read_ranges", without_the_last)
    with pytest.raises(JobError, match=r"VerificationError: the input .* must have"):
        env.collect(df)


def counted(spark: SparkSession, folder: str) -> DataFrame:
    return spark.read.parquet(folder).groupBy("b").count()


@pytest.mark.usefixtures("interpreted")
def test_a_file_that_changes_after_planning(spark: SparkSession, native: Environment, tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    write_rows(spark, folder)
    df = counted(spark, folder)
    expected = df.collect()
    for file in (tmp_path / "t").glob("*.parquet"):
        os.utime(file, (1, 1))
    assert_same_rows(native.collect(df), expected)
    ((chosen, reason),) = reasons(native)
    assert chosen == "Spark"
    assert "has changed since the query was planned" in reason


@pytest.mark.usefixtures("interpreted")
def test_a_column_in_both_files_and_folder_names(spark: SparkSession, native: Environment, tmp_path: Path) -> None:
    """Spark uses the folder's value."""
    for key in (1, 2):
        spark.range(100).selectExpr("id", "9 AS k").write.parquet(str(tmp_path / "t" / f"k={key}"))
    df = spark.read.parquet(str(tmp_path / "t")).groupBy("k").count()
    expected = df.collect()
    assert sorted(row.k for row in expected) == [1, 2]
    assert_same_rows(native.collect(df), expected)
    assert computed_by_duckdb(native.last_job)


@pytest.mark.usefixtures("interpreted")
def test_a_failed_rewrite_is_recorded(
    spark: SparkSession, native: Environment, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(native_parts.NativeParts, "_rewrite", fail)
    df = counted(spark, rows)
    assert_same_rows(native.collect(df), df.collect())
    assert reasons(native) == [("Spark", "a defect")]


@pytest.mark.usefixtures("interpreted")
def test_without_the_package(
    spark: SparkSession, native: Environment, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_failures, "find_spec", lambda _: None)
    df = counted(spark, rows)
    assert_same_rows(native.collect(df), df.collect())
    assert reasons(native) == [("Spark", "the package duckdb is not installed")]


@pytest.mark.usefixtures("interpreted")
def test_an_executor_without_a_package_is_used_only_once(
    spark: SparkSession, native: Environment, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Without(PartFunction):
        def __call__(self, _: Any) -> Any:
            import a_package_that_is_not_there  # type: ignore[import-not-found]

            return iter([a_package_that_is_not_there])

    steps = []
    monkeypatch.setattr(native_failures, "_UNAVAILABLE", {})
    monkeypatch.setattr(native_failures, "_PACKAGES", ("a_package_that_is_not_there",))
    monkeypatch.setattr(
        native_parts,
        "PartFunction",
        lambda *arguments, **keywords: steps.append(1) or Without(*arguments, **keywords),
    )
    df = counted(spark, rows)
    for _ in range(2):
        assert_same_rows(native.collect(df), df.collect())
        ((chosen, reason),) = reasons(native)
        assert chosen == "Spark"
        assert reason.startswith("No module named 'a_package_that_is_not_there' on an executor, whose Python is ")
        assert "PYSPARK_PYTHON" in reason
    assert len(steps) == 1


@pytest.mark.usefixtures("interpreted")
def test_a_worker_that_dies(
    spark: SparkSession, native: Environment, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leaf's function kills its process, like the kernel when out of memory."""

    class Dying(PartFunction):
        def __call__(self, _: Any) -> Any:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(native_parts, "PartFunction", Dying)
    df = counted(spark, rows)
    assert_same_rows(native.collect(df), df.collect())
    assert reasons(native) == [("Spark", "a Python worker failed")]


@pytest.mark.usefixtures("interpreted")
def test_little_memory_suffices(spark: SparkSession, rows: str) -> None:
    config = OFF | {"execution.native": True, "execution.native.memory": "16m"}
    env = Environment(spark, config=config, progress=False)
    df = spark.read.parquet(rows).groupBy("s", "i64", "day").count()
    assert_same_rows(env.collect(df), df.collect())


@pytest.mark.usefixtures("interpreted", "rows")
def test_the_rows_in_batches_are_counted(
    spark: SparkSession, native: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions use the number of rows of an exchange and of a scan, not the number of batches."""
    compute_all_natively(monkeypatch)
    written: list[int | None] = []
    write = exchange.write

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        result = write(*arguments, **keywords)
        written.append(result.rows)
        return result

    monkeypatch.setattr(exchange, "write", recorded)
    df = spark.sql("SELECT i8, count(*), max(s) FROM t GROUP BY i8").repartition(3, "i8")
    plain = Environment(spark, config=OFF, progress=False)
    for env in (native, plain):
        assert_same_rows(env.collect(df), df.collect())
    assert computed_by_duckdb(native.last_job)
    assert not computed_by_duckdb(plain.last_job)
    assert written[: len(written) // 2] == written[len(written) // 2 :]
    assert None not in written
