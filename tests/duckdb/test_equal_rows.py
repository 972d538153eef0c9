"""Rows and errors equal those of plain Spark if the engines differ in readers, types or texts of expressions.

Each query runs in a single native task and in many, in both ANSI modes. `Case.native` names the ways that must run
natively, so that a query that Spark computes does not pass by accident.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Environment
from penstock.spark.plans.dataframes import with_settings
from tests.generated.aggregates import outcome
from tests.support.native import compute_all_natively
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINGLE, MANY = "single task", "many tasks"
THRESHOLDS = {SINGLE: 1, MANY: 0}
LARGEST, SMALLEST = 2147483647, -2147483647
IN_NO_CALENDAR = -141430  # 12 October 1582


def days(*numbers: int | None) -> pa.Array:
    return pa.array(numbers, pa.int32()).cast(pa.date32())


INTS = pa.int32()
KEYS = pa.array([1, 1, 2, 2], INTS)
TABLES: dict[str, tuple[pa.Table, dict[str, Any]]] = {
    "t": (
        pa.table(
            {
                "k": KEYS,
                "v": pa.array([1, 2, 4, 5], INTS),
                "s": ["x", "y", "x", None],
                "big": pa.array([2**62, 2**62, 2**62, -5], pa.int64()),
                "mixed": pa.array([2**63 - 1, -(2**63), 2**63 - 1, -9], pa.int64()),
            }
        ),
        {},
    ),
    "cents": (
        pa.table(
            {
                "n": range(200_000),
                "k": pa.array([1] * 200_000, INTS),
                "long": pa.array(
                    [Decimal("999999999.99")] * 100_000 + [Decimal("-999999999.98")] * 100_000, pa.decimal128(11, 2)
                ),
                "short": pa.array(
                    [Decimal("99999.99")] * 100_000 + [Decimal("-99999.98")] * 100_000, pa.decimal128(7, 2)
                ),
                "fine": pa.array([Decimal("0.99999999999")] * 200_000, pa.decimal128(11, 11)),
                "moment": pa.array([1_700_000_000_001] * 200_000, pa.int64()),
            }
        ),
        {},
    ),
    "large": (
        pa.table(
            {
                "n": range(200_000),
                "k": pa.array([1] * 100_000 + [2] * 100_000, INTS),
                "amount": pa.array([10**11] * 199_999 + [7], pa.int64()),
                "opposite": pa.array(([10**12 + 1] * 50_000 + [3 - 10**12] * 50_000) * 2, pa.int64()),
            }
        ),
        {"row_group_size": 50_000},
    ),
    # The nearest doubles of decimals of 16 digits, of which some have the text of a smaller decimal.
    "ties": (pa.table({"k": KEYS, "x": [75774930119.38175, 93793558139.17945, 1.5, -79776344986.39115]}), {}),
    "no_ties": (pa.table({"k": KEYS, "x": [75774930119.3812, 0.00015, 12.34565, -99999999999.9999]}), {}),
    "three": (pa.table({"w": pa.array([3], INTS)}), {}),
    "single": (pa.table({"z": pa.array([1], INTS)}), {}),
    "zero": (pa.table({"a": pa.array([1], INTS), "b": pa.array([0], INTS)}), {}),
    "extreme_days": (pa.table({"k": KEYS, "d": days(LARGEST, SMALLEST, 0, None)}), {}),
    "skipped_days": (pa.table({"k": KEYS, "d": days(*[IN_NO_CALENDAR] * 4)}), {}),
    "skipped_day": (pa.table({"m": days(IN_NO_CALENDAR)}), {}),
    "cases": (pa.table([KEYS, KEYS, pa.array([7, 8, 9, 10], INTS)], names=["a", "A", "a_1"]), {}),
    "numbered": (pa.table([KEYS, KEYS, pa.array([7, 8, 9, 10], INTS), KEYS], names=["x_1", "X_1", "x_1_1", "k"]), {}),
    "row_numbers": (pa.table({"k": KEYS, "file_row_number": pa.array([7, 8, 9, 10], INTS)}), {"row_group_size": 2}),
    "brotli": (pa.table({"k": KEYS, "v": KEYS}), {"compression": "brotli"}),
    "split_streams": (
        pa.table({"k": KEYS, "v": KEYS}),
        {"use_dictionary": False, "column_encoding": {"k": "PLAIN", "v": "BYTE_STREAM_SPLIT"}},
    ),
}
LONG = ", ".join(["s"] * 30)


@dataclass(frozen=True)
class Case:
    """A query, the ways that must run natively, and settings of the session."""

    sql: str
    native: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


CASES = (
    {
        "sums that differ in a subquery": Case(
            "SELECT sum(if(v > (SELECT max(w) FROM three), 1, 0)) a, sum(if(v > (SELECT max(z) FROM single), 1, 0)) b, "
            "count(*) + 1 c FROM t",
            (SINGLE,),
        ),
        "texts that differ in a separator": Case(
            "SELECT k, max(concat(s, 'x, y')) a, max(concat(s, 'x', 'y')) b, count(*) + 1 c FROM t GROUP BY k",
            (SINGLE, MANY),
        ),
        "long lists that differ at their end": Case(
            f"SELECT k, max(concat({LONG}, 'q')) a, max(concat({LONG}, 'r')) b, count(*) + 1 c FROM t GROUP BY k",
            (SINGLE, MANY),
        ),
        "groups by a constant": Case("SELECT 'x' c, count(*), sum(v) + 1 n FROM t GROUP BY 'x'"),
        "parts of the first and last day": Case(
            "SELECT k, max(year(d)), min(month(d)), max(day(d)) FROM extreme_days GROUP BY k"
        ),
        "days after the last": Case("SELECT k, year(max(date_add(d, 2147483647))) y FROM extreme_days GROUP BY k"),
        "days before the first": Case("SELECT k, year(min(date_sub(d, 2))) y FROM extreme_days GROUP BY k"),
        "order of the first and last day": Case(
            "SELECT k, max(d) > date'2000-01-01' a, min(d) < date'2000-01-01' b, count(d) n FROM extreme_days GROUP BY k",
            (SINGLE, MANY),
        ),
        "names that differ in case": Case(
            "SELECT sum(a_1), count(*) FROM cases", settings=(("spark.sql.caseSensitive", "true"),)
        ),
        "names that differ in case, and get a number twice": Case(
            "SELECT k, sum(x_1_1), sum(X_1) FROM numbered GROUP BY k", settings=(("spark.sql.caseSensitive", "true"),)
        ),
        "an average of numbers that cancel out": Case("SELECT k, avg(mixed) FROM t GROUP BY k"),
        "an average of different numbers that cancel out": Case("SELECT avg(DISTINCT mixed) FROM t"),
        "an average of many numbers that cancel out": Case("SELECT k, avg(opposite) FROM large GROUP BY k"),
        "an average of large numbers": Case("SELECT k, round(avg(amount)) FROM large GROUP BY k", (SINGLE, MANY)),
        "decimals of doubles that are ties": Case("SELECT k, max(cast(x AS decimal(15,4))) FROM ties GROUP BY k"),
        "decimals of doubles": Case(
            "SELECT k, max(cast(x AS decimal(15,4))), min(cast(x AS decimal(20,2))) FROM no_ties GROUP BY k",
            (SINGLE, MANY),
        ),
        "an average of decimals that a double rounds": Case("SELECT k, avg(long) FROM cents GROUP BY k"),
        "averages of decimals": Case(
            "SELECT k, avg(short), avg(long) FROM cents WHERE n < 30 GROUP BY k", (SINGLE, MANY)
        ),
        "averages of short decimals": Case("SELECT k, avg(short) FROM cents GROUP BY k", (SINGLE, MANY)),
        "averages of decimals without a whole part": Case(
            "SELECT k, avg(fine) FROM cents WHERE n < 30 GROUP BY k", (SINGLE, MANY)
        ),
        "averages of numbers of either sign": Case("SELECT k, avg(v - 3) FROM t GROUP BY k", (SINGLE, MANY)),
        "an average as a whole number": Case("SELECT k, cast(avg(moment) AS bigint) FROM cents GROUP BY k"),
        "an average in a condition": Case("SELECT k FROM cents GROUP BY k HAVING avg(moment) >= max(moment)"),
        "an average of small moments": Case("SELECT k, avg(moment) FROM cents WHERE n < 5 GROUP BY k", (SINGLE, MANY)),
        "a column with a name that DuckDB adds": Case("SELECT k, sum(file_row_number) FROM row_numbers GROUP BY k"),
        "a codec that Spark lacks": Case("SELECT k, sum(v) FROM brotli GROUP BY k"),
        "a codec that Spark lacks, ignored": Case(
            "SELECT k, sum(v) FROM brotli GROUP BY k", settings=(("spark.sql.files.ignoreCorruptFiles", "true"),)
        ),
        "an encoding that not every release of Spark has": Case("SELECT k, sum(v) FROM split_streams GROUP BY k"),
        "decimal folder names": Case("SELECT p, sum(v) FROM folders GROUP BY p"),
        "an error in a subquery": Case("SELECT count(*) FROM t WHERE v > (SELECT max(a / b) FROM zero)"),
        "a large average": Case("SELECT k, avg(big) FROM t GROUP BY k"),
        "an average of all rows": Case("SELECT avg(v), avg(DISTINCT v) FROM t", (SINGLE,)),
        "a sum that wraps around, or fails": Case("SELECT k, sum(big) FROM t GROUP BY k"),
        "a sum of the largest numbers of either sign": Case("SELECT k, sum(mixed) FROM t GROUP BY k", (SINGLE, MANY)),
    }
    | {
        f"days {operator} a day of no calendar": Case(
            f"SELECT k, count(*) FROM skipped_days WHERE d {operator} (SELECT max(m) FROM skipped_day) GROUP BY k"
        )
        for operator in ("=", "<", "<=", ">", ">=", "<=>")
    }
    | {
        f"days compared with {what}": Case(f"SELECT k, count(*) FROM extreme_days WHERE d < {what} GROUP BY k")
        for what in (
            "(SELECT min(d) FROM extreme_days)",
            "(SELECT max(d) FROM extreme_days)",
            "date_add(date'1970-01-01', 2147483647)",
            "date_add(date'1970-01-01', -2147483647)",
            "date'-0001-01-01'",
            "date'0001-01-01'",
        )
    }
)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    root = tmp_path_factory.mktemp("tables")
    for name, (table, options) in TABLES.items():
        (root / name).mkdir()
        pq.write_table(table, root / name / "a.parquet", **options)
        with with_settings(spark, {"spark.sql.caseSensitive": "true"}):
            spark.read.parquet(str(root / name)).createOrReplaceTempView(name)
    folder = root / "folders" / "p=1.5"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"v": KEYS}), folder / "a.parquet")
    spark.read.schema("v int, p decimal(10,2)").parquet(str(root / "folders")).createOrReplaceTempView("folders")
    yield
    for name in (*TABLES, "folders"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not ansi"])
@pytest.mark.parametrize("way", THRESHOLDS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("interpreted", "tables")
def test_rows_are_those_of_spark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, way: str, *, ansi: bool
) -> None:
    case = CASES[name]
    compute_all_natively(monkeypatch)
    options = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": THRESHOLDS[way]}
    env = Environment(spark, config=options, progress=False)
    with with_settings(spark, {"spark.sql.ansi.enabled": str(ansi).lower(), **dict(case.settings)}):
        expected = outcome(spark.sql(case.sql).collect)
        assert outcome(lambda: env.collect(spark.sql(case.sql))) == expected
    if way in case.native:
        assert computed_by_duckdb(env.last_job)


@pytest.mark.usefixtures("interpreted")
def test_halves_of_decimals_are_rounded_away_from_zero(spark: SparkSession, tmp_path: Path) -> None:
    cents = pa.array([Decimal(number) / 100 for number in range(-25, 26)], pa.decimal128(5, 2))
    pq.write_table(pa.table({"k": range(51), "d": cents}), tmp_path / "decimals.parquet")
    spark.read.parquet(str(tmp_path / "decimals.parquet")).createOrReplaceTempView("decimals")
    options = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": THRESHOLDS[SINGLE]}
    env = Environment(spark, config=options, progress=False)
    df = spark.sql(
        "SELECT k, max(d / 64BD) AS q FROM decimals GROUP BY k"
    )  # rounded to six digits: 0.02 / 64 is 0.0003125
    expected = {row.k: row.q for row in df.collect()}
    assert expected[27] == Decimal("0.000313")
    assert {row.k: row.q for row in env.collect(df)} == expected
    assert computed_by_duckdb(env.last_job)


@pytest.mark.parametrize("way", THRESHOLDS)
@pytest.mark.usefixtures("interpreted", "tables")
def test_an_error_in_a_subquery_has_its_condition(spark: SparkSession, way: str) -> None:
    options = {"execution.native": True, "execution.batch.adaptive.whole-query-threshold": THRESHOLDS[way]}
    env = Environment(spark, config=options, progress=False)
    with with_settings(spark, {"spark.sql.ansi.enabled": "true"}), pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        env.collect(spark.sql(CASES["an error in a subquery"].sql))
