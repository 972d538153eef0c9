"""JSON texts: structs and arrays that `from_json` reads have the fields and elements of plain Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Environment
from penstock.spark.plans.dataframes import with_settings
from tests.duckdb.native_rows import MANY, SINGLE, assert_native_rows, environment
from tests.support.equality import assert_same_rows
from tests.support.native import compute_all_natively
from tests.support.stages import computed_by_duckdb

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

SCHEMA = "user BIGINT, at TIMESTAMP, kind STRING, device STRUCT<os: STRING, bot: BOOLEAN>, tags ARRAY<STRING>, items ARRAY<STRUCT<sku: STRING, price: DOUBLE, sizes: ARRAY<INT>>>"
EVENTS = f"(SELECT n, p.* FROM (SELECT n, from_json(text, '{SCHEMA}') p FROM events))"
WHOLE_QUERIES = {"execution.batch.adaptive.whole-query-threshold": 1}
BOTH = (SINGLE, MANY)
QUERIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "fields": ("SELECT kind, count(*) a, max(user) b, max(at) c, min(device.os) d FROM {e} GROUP BY kind", BOTH),
    "conditions": ("SELECT kind, count(*) a FROM {e} WHERE NOT device.bot AND size(items) > 1 GROUP BY kind", BOTH),
    "nulls": (
        "SELECT device IS NULL a, tags IS NULL b, items IS NULL c, user IS NULL d, count(*) FROM {e} GROUP BY 1, 2, 3, 4",
        (SINGLE,),
    ),
    "elements": (
        ("SELECT item.sku, count(*) a, count(item.price) b, max(item.price) c, max(size(item.sizes)) d "
        "FROM (SELECT explode(items) item FROM {e}) GROUP BY 1"),
        BOTH,
    ),
    "elements, or null": ("SELECT tag, count(*) a, max(n) b FROM (SELECT n, explode_outer(tags) tag FROM {e}) GROUP BY tag", BOTH),
    "elements of elements": (
        ("SELECT size_, count(*) a, min(kind) b FROM (SELECT kind, explode(item.sizes) size_ FROM "
        "(SELECT kind, explode(items) item FROM {e})) GROUP BY size_"),
        BOTH,
    ),
    "lateral view": ("SELECT tag, count(DISTINCT user) a FROM {e} LATERAL VIEW explode(tags) AS tag GROUP BY tag", BOTH),
    "windows": (
        ("SELECT gap, count(*) a FROM (SELECT unix_micros(at) - unix_micros(lag(at) OVER (PARTITION BY user ORDER BY at, n)) gap "
        "FROM {e}) GROUP BY gap"),
        (SINGLE,),
    ),
    "join": ("SELECT a.kind, count(*) c FROM {e} a JOIN {e} b ON a.user = b.user WHERE b.device.os = 'ios' GROUP BY a.kind", (SINGLE,)),
    "union": (
        "SELECT device.os, count(*) c FROM (SELECT device FROM {e} WHERE user > 2 UNION ALL SELECT device FROM {e}) GROUP BY device.os",
        (SINGLE,),
    ),
    "single fields": (
        "SELECT from_json(text, 'kind STRING').kind k, count(*) a, max(from_json(text, 'device STRUCT<os: STRING>').device.os) b FROM events GROUP BY 1",
        BOTH,
    ),
}  # fmt: skip
"""Queries, and the ways that must run natively. ``{e}`` are the parsed events."""
DECLINED = {
    "group by a struct": "SELECT device, count(*) FROM {e} GROUP BY device",
    "a struct as the result": "SELECT kind, first(device) FROM {e} GROUP BY kind",
    "a distinct array": "SELECT count(DISTINCT tags) FROM {e}",
    "options": "SELECT from_json(text, 'user BIGINT', map('mode', 'FAILFAST')).user u, count(*) FROM events GROUP BY 1",
    "a corrupt record": "SELECT p._corrupt_record c, count(*) FROM (SELECT from_json(text, 'user BIGINT, _corrupt_record STRING') p FROM events) GROUP BY 1",
    "positions": "SELECT pos, count(*) FROM (SELECT posexplode(tags) FROM {e}) GROUP BY pos",
    "an array of columns": "SELECT x, count(*) FROM (SELECT explode(array(n, 1)) x FROM {e}) GROUP BY x",
}
"""Queries that Spark computes, or whose parts with nested values Spark computes."""
UNUSUAL = {
    "malformed": '{"user": 1, "kind": "a"',
    "single quotes": "{'user': 1, 'kind': 'a'}",
    "a trailing comma": '{"user": 1, "kind": "a",}',
    "a name that occurs twice": '{"user": 1, "kind": "a", "kind": "b"}',
    "a name that occurs twice in an element": '{"items": [{"sku": "a", "sku": "b"}]}',
    "an array": '[{"user": 1, "kind": "a"}]',
    "a number as text": '{"user": "1", "kind": 5}',
    "a fraction": '{"user": 1.5, "kind": "a"}',
    "a large number": '{"user": 9223372036854775808, "kind": "a"}',
    "a time that does not exist": '{"at": "2024-02-30T00:00:00"}',
    "a day": '{"at": "2024-02-28"}',
    "an element of another type": '{"items": [{"sku": "a"}, "x"]}',
    "an object instead of an array": '{"tags": {"a": 1}, "items": {"sku": "a"}}',
}
"""JSON texts that DuckDB leaves to Spark."""


def write_events(path: str, count: int = 3000, more: tuple[str, ...] = ()) -> None:
    """Write events with all fields, with missing fields and nulls, and texts without an object."""
    rng = random.Random(5)
    texts: list[str | None] = [None, "", "{}", ' { "kind" : "x" } ', '{"kind":"\\u00e9\\n\\"","user":-3}', *more]
    texts += [json.dumps(_event(rng), ensure_ascii=rng.random() < 0.5) for _ in range(count - len(texts))]
    pq.write_table(pa.table({"n": pa.array(range(count)), "text": texts}), path, row_group_size=500)


def _event(rng: random.Random) -> dict[str, Any]:
    day = f"{rng.choice([1969, 2016, 2024])}-{rng.choice(['03-31', '10-27', '02-28'])}"
    items = [
        {
            "sku": f"s{rng.randrange(5)}",
            "price": rng.choice([1, 2.5, None, -0.0, 1e300]),
            "sizes": [1, 2][: rng.randrange(3)],
        }
        for _ in range(rng.randrange(4))
    ]
    event = {
        "user": rng.choice([None, *range(8)]),
        "at": f"{day}T{rng.randrange(4):02}:{rng.randrange(60):02}:{rng.randrange(60):02}{rng.choice(['', '', '.5', 'Z', '+02:00'])}",
        "kind": rng.choice(["view", "order", "", "naïve, nan", "a,"]),
        "device": rng.choice([None, {}, {"os": "ios", "bot": True}, {"os": "android", "bot": False, "more": [1]}]),
        "tags": rng.choice([None, [], ["a"], ["a", None, "b"]]),
        "items": rng.choice([None, [None], items, items, items]),
    }
    return {name: value for name, value in event.items() if rng.random() < 0.9}


@pytest.fixture(scope="module", autouse=True)
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = str(tmp_path_factory.mktemp("json") / "events.parquet")
    write_events(path)
    spark.read.parquet(path).createOrReplaceTempView("events")
    yield
    spark.catalog.dropTempView("events")


def settings(zone: str = "Europe/Berlin", *, ansi: bool = True) -> dict[str, str]:
    return {"spark.sql.ansi.enabled": str(ansi).lower(), "spark.sql.session.timeZone": zone}


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not ansi"])
@pytest.mark.parametrize(("name", "way"), [(name, way) for name, (_, ways) in QUERIES.items() for way in ways])
@pytest.mark.sample(4)
@pytest.mark.usefixtures("interpreted")
def test_queries(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, way: str, *, ansi: bool) -> None:
    compute_all_natively(monkeypatch)
    assert_native_rows(spark, QUERIES[name][0].format(e=EVENTS), way, settings(ansi=ansi))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe", "+02:30"])
@pytest.mark.sample(1)
@pytest.mark.usefixtures("interpreted")
def test_times(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    compute_all_natively(monkeypatch)
    sql = f"SELECT unix_micros(at) a, count(*) b, max(hour(at)) c FROM {EVENTS} GROUP BY 1"
    assert_native_rows(spark, sql, SINGLE, settings(zone))


@pytest.mark.parametrize("name", DECLINED)
@pytest.mark.sample(2)
@pytest.mark.usefixtures("interpreted")
def test_queries_that_spark_computes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    compute_all_natively(monkeypatch)
    env = Environment(spark, config=WHOLE_QUERIES, progress=False)
    sql = DECLINED[name].format(e=EVENTS)
    if name == "options":
        sql = sql.replace("FROM events", "FROM events WHERE n > 4")
    assert_same_rows(env.collect(spark.sql(sql)), spark.sql(sql).collect())
    assert env.last_job is not None
    assert "DuckDB, in one task" not in [decision.chosen for decision in env.last_job.decisions]


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.sql.json.enablePartialResults", "FALSE"), ("spark.sql.legacy.timeParserPolicy", "EXCEPTION")],
)
@pytest.mark.usefixtures("interpreted")
def test_settings_that_change_the_parser(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, key: str, value: str
) -> None:
    compute_all_natively(monkeypatch)
    env = Environment(spark, config=WHOLE_QUERIES, progress=False)
    sql = f"SELECT device.os, count(*) FROM {EVENTS} GROUP BY 1"
    with with_settings(spark, {key: value}):
        assert_same_rows(env.collect(spark.sql(sql)), spark.sql(sql).collect())
    assert not computed_by_duckdb(env.last_job)


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.sample(3)
@pytest.mark.usefixtures("interpreted")
def test_unusual_texts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    compute_all_natively(monkeypatch)
    write_events(str(tmp_path / "unusual.parquet"), 100, (UNUSUAL[name],))
    spark.read.parquet(str(tmp_path / "unusual.parquet")).createOrReplaceTempView("unusual")
    sql = "SELECT kind, max(n) a, max(user) b, max(at) c, max(size(tags)) d, max(item.sku) e FROM (SELECT *, explode_outer(items) item FROM {e}) GROUP BY kind"
    sql = sql.format(e=EVENTS.replace("FROM events", "FROM unusual"))
    env = Environment(spark, config=WHOLE_QUERIES, progress=False)
    assert_same_rows(env.collect(spark.sql(sql)), spark.sql(sql).collect())
    assert not computed_by_duckdb(env.last_job)


@pytest.mark.usefixtures("interpreted")
def test_a_projection_that_repeats_its_keys(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    compute_all_natively(monkeypatch)

    def largest(group: pd.DataFrame) -> pd.DataFrame:
        return group.sort_values("n").iloc[-1:][["kind", "os", "n"]]

    parsed = spark.sql(f"SELECT kind, device.os, n FROM {EVENTS} WHERE user > 2")
    df = parsed.groupBy("kind", "os").applyInPandas(largest, "kind STRING, os STRING, n BIGINT")
    env = environment(spark, MANY)
    assert_same_rows(env.collect(df), df.collect())
    assert computed_by_duckdb(env.last_job)
