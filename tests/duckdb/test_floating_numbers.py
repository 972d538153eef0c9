"""Floating-point numbers: keys, orders, conditions and aggregates have the values of plain Spark.

Sums are rounded in the order of their rows, which differs in each run of either engine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.plans.dataframes import with_settings
from tests.duckdb.native_rows import MANY, SINGLE, assert_native_rows, environment
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN, INFINITY = float("nan"), float("inf")
SPECIAL = [NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, 1e-300, -1e300, 1.7e308, 4.9e-324, 0.1, -7.25, None]
ORDINARY = [0.1, 3.0, -7.25, 1e6, 1e-9, 12345.678, None]
GROUPS = 30

# Queries of the tables `special` and `ordinary`, and the ways that must run natively.
BOTH = (SINGLE, MANY)
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "sums": (
        (
            "SELECT g, sum(x) about_0, avg(x) about_1, sum(f) about_2, avg(f) about_3, avg(i) about_4, avg(g) a, count(x) n, "
            "sum(DISTINCT f) about_5, avg(DISTINCT i) about_6 FROM special GROUP BY g"
        ),
        BOTH,
    ),
    "smallest and largest": (
        "SELECT g, min(x) + 0D a, max(x) + 0D b, min(f) + 0D c, max(f) + 0D d FROM special GROUP BY g",
        (SINGLE,),
    ),
    "groups": ("SELECT x, f, count(*) n, count(DISTINCT y) m FROM special GROUP BY x, f", BOTH),
    "distinct numbers": (
        "SELECT g, count(DISTINCT x) a, count(DISTINCT x, f) b, count(DISTINCT f) c FROM special GROUP BY g",
        BOTH,
    ),
    "sums of all rows": ("SELECT sum(x) about_0, avg(y) about_1, max(x) a, stddev(y) about_2 FROM special", (SINGLE,)),
    "statistics": (
        (
            "SELECT g, stddev(x) about_0, stddev_pop(y) about_1, var_samp(y) about_2, var_pop(x) about_3, corr(x, y) about_4, "
            "covar_pop(x, y) about_5, covar_samp(x, y) about_6, corr(y, 1D) about_7 FROM ordinary GROUP BY g"
        ),
        BOTH,
    ),
    "correlations whose products overflow": (
        "SELECT g, corr(x * 1e75, y * 1e80) about_0 FROM ordinary GROUP BY g",
        BOTH,
    ),
    "correlations whose products are zero": ("SELECT g, corr(x * 1e-160, y * 1e-170) a FROM ordinary GROUP BY g", BOTH),
    "statistics of NaN and infinity": (
        (
            "SELECT g, stddev(if(x > -1e200 AND x < 1e200, x, y / 0.0)) a, var_pop(if(g > 2, double('NaN'), y)) about_1 "
            "FROM ordinary GROUP BY g"
        ),
        (),
    ),
    "statistics of single rows": (
        (
            "SELECT n, stddev(x) a, var_pop(x) b, corr(x, y) c, covar_pop(x, y) d, covar_samp(x, y) e, median(x) f "
            "FROM ordinary GROUP BY n"
        ),
        (SINGLE,),
    ),
    "percentiles": (
        (
            "SELECT g, median(x) a, percentile(x, 0.25) b, percentile(y, 0.9) c, median(f) + 0D d, median(i) e, percentile(x, 0) h, "
            "percentile(x, 1) k, percentile_cont(0.3) WITHIN GROUP (ORDER BY y) l FROM ordinary GROUP BY g"
        ),
        (SINGLE,),
    ),
    "median of special numbers": (
        "SELECT g, median(x) + 0D a, percentile(x, 0.9) + 0D b FROM special GROUP BY g",
        (SINGLE,),
    ),
    "ranks": (
        (
            "SELECT x, max(r) a, max(s) b, max(t) c FROM (SELECT x, rank() OVER (ORDER BY x) r, dense_rank() OVER (PARTITION BY f "
            "ORDER BY x DESC NULLS LAST) s, count(*) OVER (PARTITION BY x) t FROM special) GROUP BY x"
        ),
        (SINGLE,),
    ),
    "running sums": (
        "SELECT g, max(s) about_0 FROM (SELECT g, sum(y) OVER (PARTITION BY f ORDER BY x, y) s FROM special) GROUP BY g",
        (SINGLE,),
    ),
    "offsets in windows": (
        (
            "SELECT g, max(a) a, min(b) b, max(c) c, max(d) d, max(e) about_0, max(h) h, min(k) k, max(m) m FROM (SELECT g, "
            "lag(y) OVER w a, lead(y, 2, 7D) OVER w b, ntile(4) OVER w c, percent_rank() OVER w d, avg(y) OVER (PARTITION BY g "
            "ORDER BY n ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) e, first_value(y) OVER w h, nth_value(y, 2) OVER w k, "
            "last_value(y, true) OVER (PARTITION BY g ORDER BY n ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) m "
            "FROM ordinary WINDOW w AS (PARTITION BY g ORDER BY n)) GROUP BY g"
        ),
        (SINGLE,),
    ),
    "the row with the least value": (
        "SELECT g, min_by(y, n) a, max_by(x, n) b, min_by(n, if(n > 9, n, NULL)) c FROM special GROUP BY g",
        (SINGLE,),
    ),
    "rows with the same least value": ("SELECT g % 3 k, min_by(g % 3, g) a FROM ordinary GROUP BY g % 3", ()),
    "bits": (
        "SELECT g, bit_and(i) a, bit_or(i) b, bit_xor(i) c, bool_and(i > 1) d, any(i > 1) e FROM special GROUP BY g",
        BOTH,
    ),
    "the first rows": ("SELECT x, count(*) n FROM special GROUP BY x ORDER BY x DESC LIMIT 4", (SINGLE,)),
    "join keys": (
        (
            "SELECT a.x, count(*) n FROM special a JOIN (SELECT x, f FROM special WHERE g < 3) b ON a.x = b.x AND a.f <=> b.f "
            "GROUP BY a.x"
        ),
        BOTH,
    ),
    "comparisons": (
        (
            "SELECT g, sum(if(x < y, 1, 0)) a, sum(CASE WHEN x = f THEN 1 ELSE 0 END) b, min(x <=> y) c, max(x >= 1e-300D) d, "
            "count_if(x IN (0D, 1.5D, double('NaN'))) e, count_if(x > double('Infinity')) h FROM special GROUP BY g"
        ),
        BOTH,
    ),
    "conditions on rows": ("SELECT g, count(*) n FROM by_spark WHERE x > 1 AND y <= 0.75 GROUP BY g", BOTH),
    "conditions on row groups without NaN": ("SELECT g, count(*) n FROM ordinary WHERE x >= 3 GROUP BY g", BOTH),
    "conditions on row groups with NaN": ("SELECT g, count(*) n FROM special WHERE x > 1.5 GROUP BY g", ()),
    "the first of sorted rows": (
        "SELECT first(g) a, last(y) b FROM (SELECT * FROM ordinary ORDER BY y DESC, n LIMIT 50)",
        (),
    ),
    "a list of zeros": ("SELECT g, count(*) n FROM by_spark WHERE x IN (0D, 3D) GROUP BY g", ()),
    "at least zero": ("SELECT g, count(*) n FROM by_spark WHERE x >= 0 GROUP BY g", ()),
}


def rows(values: list[float | None], count: int = 900) -> pa.Table:
    """Return a table with numbers drawn from the values, and from a range of ordinary numbers."""
    rng = random.Random(7)
    return pa.table(
        {
            "n": pa.array(range(count), pa.int64()),
            "g": pa.array([rng.randrange(GROUPS) for _ in range(count)], pa.int32()),
            "x": pa.array([rng.choice(values) for _ in range(count)], pa.float64()),
            "y": pa.array([rng.uniform(-1, 1) if rng.random() < 0.9 else None for _ in range(count)], pa.float64()),
            "f": pa.array([rng.choice([0.0, -0.0, 1.5, None, NAN, 3.25]) for _ in range(count)], pa.float32()),
            "i": pa.array([rng.choice([1, None, 2**53 + 1, 2**62, 2**63 - 1]) for _ in range(count)], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    root = tmp_path_factory.mktemp("numbers")
    # Arrow ignores NaN in the statistics of row groups; Spark's writer does not.
    for name, values in {"special": SPECIAL, "ordinary": ORDINARY}.items():
        pq.write_table(rows(values), root / f"{name}.parquet", row_group_size=30)
        spark.read.parquet(str(root / f"{name}.parquet")).createOrReplaceTempView(name)
    spark.table("special").sort("x").coalesce(1).write.option("parquet.block.size", 2048).parquet(
        str(root / "by_spark")
    )
    spark.read.parquet(str(root / "by_spark")).createOrReplaceTempView("by_spark")
    yield
    for name in ("special", "ordinary", "by_spark"):
        spark.catalog.dropTempView(name)


def mode(*, ansi: bool) -> dict[str, str]:
    return {"spark.sql.ansi.enabled": str(ansi).lower(), "spark.sql.autoBroadcastJoinThreshold": "-1"}


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not ansi"])
@pytest.mark.parametrize(("name", "way"), [(name, way) for name, (_, ways) in CASES.items() for way in ways])
@pytest.mark.sample(8)
@pytest.mark.usefixtures("interpreted", "tables")
def test_native_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, way: str, *, ansi: bool) -> None:
    compute_all_natively(monkeypatch)
    assert_native_rows(spark, CASES[name][0], way, mode(ansi=ansi))


@pytest.mark.parametrize("way", BOTH)
@pytest.mark.parametrize("name", [name for name, (_, ways) in CASES.items() if not ways])
@pytest.mark.usefixtures("interpreted", "tables")
def test_rows_that_spark_computes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, way: str) -> None:
    """Row groups that Spark's reader skips have rows that match the condition, so DuckDB must not compute them."""
    compute_all_natively(monkeypatch)
    env = environment(spark, way)
    with with_settings(spark, mode(ansi=False)):
        df = spark.sql(CASES[name][0])
        assert_same_rows(env.collect(df), df.collect())
    assert "row groups" not in name or not computed_by_duckdb(env.last_job)


@pytest.mark.thorough
@pytest.mark.parametrize("way", BOTH)
@pytest.mark.usefixtures("interpreted")
def test_many_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str) -> None:
    compute_all_natively(monkeypatch)
    pq.write_table(rows(ORDINARY, 100_000), tmp_path / "many.parquet", row_group_size=10_000)
    spark.read.parquet(str(tmp_path / "many.parquet")).createOrReplaceTempView("many_numbers")
    sql = CASES["statistics"][0].replace(
        "FROM ordinary", ", sum(x) about_8, avg(y) about_9, avg(n) about_10 FROM many_numbers"
    )
    assert_native_rows(spark, sql, way, mode(ansi=True))
