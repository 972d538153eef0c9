"""Timestamps: columns of files, keys, conditions and functions have the values of plain Spark in every time zone.

The instants are around the changes of offsets that the zones have had, local mean time among them.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from penstock.spark.plans.dataframes import with_settings
from tests.duckdb.native_rows import MANY, SINGLE, assert_native_rows, environment
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZONES = [
    *["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu", "Africa/Casablanca", "Pacific/Apia"],
    *["Australia/Lord_Howe", "America/Havana", "America/Sao_Paulo", "UTC", "+02:30"],
]
MOMENTS = [
    *[
        "1893-03-31T23:06:32",
        "1945-05-24T00:00:00",
        "1969-12-31T23:59:59",
        "1987-04-05T07:00:00",
        "1999-12-31T23:00:00",
    ],
    *[
        "2000-02-28T23:30:00",
        "2011-12-30T10:00:00",
        "2016-10-16T03:00:00",
        "2024-03-10T07:00:00",
        "2024-03-31T01:00:00",
    ],
    *[
        "2024-04-06T15:00:00",
        "2024-10-05T15:30:00",
        "2024-10-27T00:00:00",
        "2024-11-03T06:00:00",
        "2037-12-31T23:59:59",
    ],
    *["2048-11-01T06:00:00", "9999-12-30T09:00:00"],
]
MIDNIGHT_CHANGES = {"America/Havana"}
"""Zones that set the clock back at midnight, in which Spark computes the start of a year."""
STEPS = [0, -1, 1, 3_600_000_000, -3_600_000_000, 1_800_000_000, 123_456, 86_400_000_000, -86_400_000_000]
"""Microseconds around a moment."""
OLD = ["0001-01-03T00:00:00", "1582-10-10T12:00:00", "1600-02-29T00:00:00", "1883-11-18T17:00:00"]
RECENT = "s >= timestamp'2000-02-01 00:00:00' AND s < timestamp'2034-01-01 00:00:00'"
BOTH = (SINGLE, MANY)

# Queries of the tables `times`, `times_96` and `times_ms`, and the ways that must run natively.
COLUMNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "smallest and largest": (
        "SELECT g, min(t) a, max(t) b, min(n) c, max(n) d, count(DISTINCT t, n) e FROM times GROUP BY g",
        BOTH,
    ),
    "groups": ("SELECT t, n, count(*) m FROM times GROUP BY t, n", BOTH),
    "dates as text": ("SELECT g, max(date_format(date(n), 'dd/MM/yyyy')) a FROM times GROUP BY g", BOTH),
    "96 bits": ("SELECT g, min(t) a, max(t) b, max(n) c, count(*) d FROM times_96 GROUP BY g", BOTH),
    "milliseconds": ("SELECT g, min(s) a, max(s) b, max(n) c FROM times_ms GROUP BY g", BOTH),
    "conditions": (
        (
            "SELECT g, count(*) m FROM times WHERE s >= timestamp'2000-01-01 00:00:00' AND s < timestamp'2024-06-01 00:00:00' "
            "AND n <> timestamp_ntz'2024-03-31 01:00:00' GROUP BY g"
        ),
        BOTH,
    ),
    "values of conditions": (
        (
            "SELECT g, max(coalesce(n, timestamp_ntz'1582-10-10 12:00:00')) a, count_if(s IN (timestamp'2024-03-31 03:00:00')) b, "
            "max(CASE WHEN t < s THEN t ELSE s END) c, min(t <=> s) d FROM times GROUP BY g"
        ),
        BOTH,
    ),
    "join keys": (
        "SELECT a.g, count(*) m, max(b.n) n FROM times a JOIN (SELECT t, n FROM times WHERE g < 3) b ON a.t = b.t GROUP BY a.g",
        BOTH,
    ),
    "ranks": (
        "SELECT g, max(r) a FROM (SELECT g, rank() OVER (PARTITION BY n ORDER BY t DESC) r FROM times) GROUP BY g",
        (SINGLE,),
    ),
    "the first rows": ("SELECT t, count(*) m FROM times GROUP BY t ORDER BY t DESC LIMIT 5", (SINGLE,)),
    "a condition before 1900": (
        "SELECT g, count(*) m FROM times WHERE t > timestamp'1880-01-01 00:00:00' GROUP BY g",
        (),
    ),
    "a condition of microseconds": (
        "SELECT g, count(*) m FROM times_ms WHERE s > timestamp'2024-01-01 00:00:00.000001' GROUP BY g",
        (),
    ),
}
LONG_UNITS = ", ".join(f"max(date_trunc('{unit}', s)) {unit}" for unit in ("week", "month", "quarter", "year"))
SHORT_UNITS = ("microsecond", "millisecond", "second", "minute", "hour")
FUNCTIONS = {
    "fields of instants": "SELECT s, max(hour(s)) a, max(minute(s)) b, max(second(s)) c, max(year(s)) d, max(day(s)) e FROM times GROUP BY s",
    "fields of old instants": "SELECT t, max(hour(t)) a, max(second(t)) b, max(cast(t AS date)) c FROM old_times GROUP BY t",
    "fields of local times": "SELECT n, max(hour(n)) a, max(minute(n)) b, max(second(n)) c, max(cast(n AS date)) d FROM times GROUP BY n",
    "numbers": (
        "SELECT s, max(unix_micros(s)) a, max(unix_millis(s)) b, max(unix_seconds(s)) c, max(cast(s AS bigint)) d, "
        "max(timestamp_micros(unix_micros(s))) e, max(timestamp_seconds(unix_seconds(s))) h FROM times GROUP BY s"
    ),
    "local times of instants": "SELECT s, max(cast(s AS timestamp_ntz)) a, max(cast(s AS date)) b FROM times GROUP BY s",
    "instants of local times": "SELECT n, max(cast(n AS timestamp)) a FROM times WHERE year(n) BETWEEN 1890 AND 2048 GROUP BY n",
    "starts of days": "SELECT d, max(cast(d AS timestamp)) a, max(cast(d AS timestamp_ntz)) b FROM times GROUP BY d",
    "short units": (
        "SELECT s, "
        + ", ".join(f"max(date_trunc('{unit}', s)) {unit}_" for unit in SHORT_UNITS)
        + " FROM times GROUP BY s"
    ),
    "days": f"SELECT s, max(date_trunc('day', s)) a FROM times WHERE {RECENT} GROUP BY s",
    "long units": f"SELECT s, {LONG_UNITS} FROM times WHERE {RECENT} GROUP BY s",
    "texts": (
        "SELECT s, max(date_format(s, 'yyyy-MM-dd HH:mm:ss')) a, max(cast(s AS string)) b, max(date_format(n, 'yyyyMMdd')) c "
        "FROM times GROUP BY s"
    ),
    "texts of seconds": "SELECT s, max(from_unixtime(unix_seconds(s), 'HH:mm dd.MM.yyyy')) a FROM times GROUP BY s",
}


def micros(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def instants(rng: random.Random, moments: list[str], count: int) -> list[int | None]:
    return [None if rng.random() < 0.05 else micros(rng.choice(moments)) + rng.choice(STEPS) for _ in range(count)]


def write_times(folder: str, count: int = 1500) -> None:
    """Write the tables as files of Arrow."""
    rng = random.Random(11)
    utc, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    spread = [rng.randrange(micros("1890-01-01"), micros("2049-01-01")) for _ in range(count // 2)]
    near = instants(rng, MOMENTS[:-1], count - len(spread))
    columns = {
        "g": pa.array([rng.randrange(8) for _ in range(count)], pa.int32()),
        "t": pa.array(instants(rng, MOMENTS + OLD, count), utc),
        "s": pa.array([*spread, *near], utc),
        "n": pa.array(instants(rng, MOMENTS + OLD, count), local),
        "d": pa.array([None, *(rng.randrange(-29_000, 28_800) for _ in range(count - 1))], pa.int32()).cast(
            pa.date32()
        ),
    }
    table = pa.table(columns)
    pq.write_table(table, f"{folder}/times.parquet", row_group_size=400)
    pq.write_table(table.select(["t"]).slice(0, 300), f"{folder}/old_times.parquet")
    milliseconds = pa.schema([("g", pa.int32()), ("s", pa.timestamp("ms", "UTC")), ("n", pa.timestamp("ms"))])
    pq.write_table(table.select(["g", "s", "n"]).cast(milliseconds, safe=False), f"{folder}/times_ms.parquet")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    root = tmp_path_factory.mktemp("times")
    write_times(str(root))
    names = ["times", "old_times", "times_ms"]
    for name in names:
        spark.read.parquet(str(root / f"{name}.parquet")).createOrReplaceTempView(name)
    with with_settings(spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        spark.table("times").coalesce(1).write.parquet(str(root / "times_96"))
    spark.read.parquet(str(root / "times_96")).createOrReplaceTempView("times_96")
    yield
    for name in (*names, "times_96"):
        spark.catalog.dropTempView(name)


def settings(zone: str = "Europe/Berlin", *, ansi: bool = True) -> dict[str, str]:
    return {
        "spark.sql.ansi.enabled": str(ansi).lower(),
        "spark.sql.session.timeZone": zone,
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.datetime.java8API.enabled": "false",
    }


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not ansi"])
@pytest.mark.parametrize(("name", "way"), [(name, way) for name, (_, ways) in COLUMNS.items() for way in ways])
@pytest.mark.sample(4)
@pytest.mark.usefixtures("interpreted", "tables")
def test_columns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, way: str, *, ansi: bool) -> None:
    compute_all_natively(monkeypatch)
    assert_native_rows(spark, COLUMNS[name][0], way, settings(ansi=ansi))


@pytest.mark.parametrize("name", [name for name, (_, ways) in COLUMNS.items() if not ways])
@pytest.mark.usefixtures("interpreted", "tables")
def test_conditions_that_spark_computes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    compute_all_natively(monkeypatch)
    env = environment(spark, SINGLE)
    with with_settings(spark, settings()):
        df = spark.sql(COLUMNS[name][0])
        assert sorted(env.collect(df)) == sorted(df.collect())
    assert not computed_by_duckdb(env.last_job)


@pytest.mark.parametrize(
    ("name", "zone"),
    [(name, zone) for name in FUNCTIONS for zone in ZONES if name != "long units" or zone not in MIDNIGHT_CHANGES],
)
@pytest.mark.sample(4)
@pytest.mark.usefixtures("interpreted", "tables")
def test_functions(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, zone: str) -> None:
    compute_all_natively(monkeypatch)
    assert_native_rows(spark, FUNCTIONS[name], SINGLE, settings(zone))


@pytest.mark.thorough
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.usefixtures("interpreted")
def test_many_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, zone: str) -> None:
    compute_all_natively(monkeypatch)
    write_times(str(tmp_path), 100_000)
    spark.read.parquet(str(tmp_path / "times.parquet")).createOrReplaceTempView("many_times")
    sums = ", ".join(f"sum({field}(s)) {field}_" for field in ("hour", "minute", "second", "year", "month", "day"))
    sql = f"SELECT g, {sums}, count(DISTINCT cast(s AS date)) a, count(DISTINCT date_trunc('hour', s)) b, max(t) c FROM many_times"
    assert_native_rows(spark, f"{sql} GROUP BY g", SINGLE, settings(zone))


@pytest.mark.parametrize("pattern", ["MMMM", "dd MMMM yyyy", "d.M.yy", "yyyy-MM-dd"])
@pytest.mark.sample(2)
@pytest.mark.usefixtures("tables")
def test_dates_as_text(spark: SparkSession, pattern: str) -> None:
    df = spark.sql(f"SELECT g, max(date_format(date(n), '{pattern}')) a FROM times GROUP BY g")
    env = environment(spark, SINGLE)
    assert_same_rows(env.collect(df), df.collect())
    assert computed_by_duckdb(env.last_job) == (pattern == "yyyy-MM-dd")


def test_times_that_duckdb_reads_as_infinite(spark: SparkSession, tmp_path: Path) -> None:
    micros = pa.array([2**63 - 1, 1 - 2**63, 0], pa.int64())
    times = {"g": pa.array([1, 2, 3]), "t": micros.cast(pa.timestamp("us", "UTC"))}
    pq.write_table(pa.table(times), tmp_path / "infinite.parquet")
    groups = spark.read.parquet(str(tmp_path / "infinite.parquet")).groupBy("g")
    df = groups.agg(F.max(F.expr("unix_micros(t)")), F.min(F.expr("unix_seconds(t)")), F.max(F.expr("minute(t)")))
    env = environment(spark, SINGLE)
    assert_same_rows(env.collect(df), df.collect())
    assert env.last_job is not None
    assert [decision.outcome["instead"] for decision in env.last_job.decisions if decision.kind == "native"] == [
        "Spark computes it"
    ]
