"""Upserts into Delta tables: rows replace those with their key, in one commit, whatever other writers do meanwhile."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.services import needed_module

needed_module("deltalake", "delta")

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from penstock.commit import Access
from penstock.commit.prepared import prepared_of
from penstock.connectors import DeltaSink, DeltaSource
from penstock.connectors.delta_upsert import PreparedDeltaUpsert
from penstock.errors import JobError, SinkError
from penstock.spark.dataframes import with_settings
from penstock.spark.jvm import Bridge
from tests.connectors.delta_tables import rows_by_kernel
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

Row = tuple[int, str, str | None]
COLUMNS = "id long, kind string, text string"


def rows(ids: Iterable[int], text: str) -> list[Row]:
    return [(n, f"k {n % 3}", None if n % 7 == 0 else f"{text}{n}") for n in ids]


def arrow(found: list[Row]) -> pa.Table:
    ids, kinds, texts = zip(*found, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "kind": list(kinds), "text": pa.array(texts, pa.string())})


@pytest.fixture(params=[[], ["kind"]], ids=["plain", "parted"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table of three commits, with ids from 0 to 299."""
    where = str(tmp_path / "t")
    for part in range(3):
        by = request.param or None
        deltalake.write_deltalake(
            where, arrow(rows(range(100 * part, 100 * part + 100), "old")), mode="append", partition_by=by
        )
    return where


def upserted(env: Environment, df: DataFrame, path: str, **options: Any) -> None:
    env.write(df, DeltaSink(path, mode="upsert", key=options.pop("key", "id"), **options))
    env.execute()


def merged(old: Iterable[Row], *new: Iterable[Row]) -> list[Row]:
    found = {row[0]: row for row in old}
    for one in new:
        found |= {row[0]: row for row in one}
    return list(found.values())


def check(env: Environment, spark: SparkSession, path: str, expected: list[Row]) -> None:
    """Compare the rows as Penstock reads them, as deltalake does, and as plain Spark reads the files of the log."""
    assert_same_rows(env.collect(env.read(DeltaSource(path)).select("id", "kind", "text")), expected)
    assert_same_rows([tuple(row.values()) for row in rows_by_kernel(path, "id, kind, text")], expected)  # type: ignore[arg-type]
    files = deltalake.DeltaTable(path).file_uris()
    plain = spark.read.option("basePath", path).parquet(*[f"file:{one.removeprefix('file://')}" for one in files])
    assert_same_rows(plain.select("id", "kind", "text").collect(), expected)


def test_rows_are_replaced_and_added_in_one_commit(env: Environment, spark: SparkSession, path: str) -> None:
    table = deltalake.DeltaTable(path)
    version, before = table.version(), set(table.file_uris())
    new = rows([*range(150, 160), *range(1000, 1010)], "new")
    upserted(env, spark.createDataFrame(new, COLUMNS).repartition(3), path)
    check(env, spark, path, merged(rows(range(300), "old"), new))
    table = deltalake.DeltaTable(path)
    assert table.version() == version + 1
    kept = before & set(table.file_uris())
    per_commit = len(before) // 3
    assert len(kept) == 2 * per_commit, "files without replaced rows stay"
    assert table.metadata().partition_columns in ([], ["kind"])


@pytest.mark.thorough
def test_rows_that_only_come_change_no_file(env: Environment, spark: SparkSession, path: str) -> None:
    before = set(deltalake.DeltaTable(path).file_uris())
    new = rows(range(1000, 1010), "new")
    upserted(env, spark.createDataFrame(new, COLUMNS), path)
    check(env, spark, path, merged(rows(range(300), "old"), new))
    assert before < set(deltalake.DeltaTable(path).file_uris())


@pytest.mark.thorough
def test_several_columns_missing_ones_and_moved_rows(env: Environment, spark: SparkSession, path: str) -> None:
    new = spark.createDataFrame([(5, "k 2"), (5, "k 0"), (6, "k 0")], "ID int, kind string")
    upserted(env, new, path, key=["Id", "kind"])
    wanted = [row for row in rows(range(300), "old") if row[0] not in {5, 6}]
    check(env, spark, path, [*wanted, (5, "k 2", None), (5, "k 0", None), (6, "k 0", None)])
    upserted(env, spark.createDataFrame([(6, "k 1", "moved")], COLUMNS), path)
    check(env, spark, path, [*wanted, (5, "k 2", None), (5, "k 0", None), (6, "k 1", "moved")])


@pytest.mark.thorough
def test_a_new_table_and_no_rows(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "made")
    first = rows(range(20), "a")
    upserted(env, spark.createDataFrame(first, COLUMNS), where, partition_by="kind")
    check(env, spark, where, first)
    upserted(env, spark.createDataFrame([], COLUMNS), where)
    check(env, spark, where, first)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ([(1, "a", "x"), (2, "a", "x"), (1, "b", "y")], r"2 rows for table .* have the key id=1"),
        ([(1, "a", "x"), (None, "a", "x")], r"a row for table .* has no key"),
    ],
)
def test_keys_that_tell_no_rows_apart_are_refused(
    env: Environment, spark: SparkSession, path: str, new: Any, message: str
) -> None:
    version = deltalake.DeltaTable(path).version()
    with pytest.raises((JobError, SinkError), match=message):
        upserted(env, spark.createDataFrame(new, COLUMNS), path)
    assert deltalake.DeltaTable(path).version() == version


@pytest.mark.parametrize(
    ("key", "message"), [("none", "a column none that the table does not have"), (["id", "id"], "a column id twice")]
)
def test_bad_keys_are_refused_before_any_row(
    env: Environment, spark: SparkSession, path: str, key: Any, message: str
) -> None:
    df = spark.range(1).selectExpr("id", "'k' as kind", "raise_error('a row was made') as text")
    with pytest.raises(SinkError, match=message):
        upserted(env, df, path, key=key)


def test_a_key_and_the_mode_belong_together() -> None:
    with pytest.raises(SinkError, match="mode upsert needs a key"):
        DeltaSink("x", mode="upsert")
    with pytest.raises(SinkError, match="mode upsert needs a key"):
        DeltaSink("x", key="id")


def test_tables_that_record_changes_are_refused(env: Environment, spark: SparkSession, path: str) -> None:
    deltalake.DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    df = spark.range(1).selectExpr("id", "'k' as kind", "raise_error('a row was made') as text")
    with pytest.raises(SinkError, match="records the changes"):
        upserted(env, df, path)


@pytest.mark.thorough
def test_a_token_is_written_once(env: Environment, spark: SparkSession, path: str) -> None:
    for text in ("new", "again"):
        upserted(env, spark.createDataFrame(rows([1], text), COLUMNS), path, token="monday")
    check(env, spark, path, merged(rows(range(300), "old"), rows([1], "new")))


def by_another_process(path: str, found: list[Row], how: str) -> None:
    """Write with deltalake alone, in a process of its own."""
    code = (
        "import deltalake, pyarrow as pa\n"
        f"found = pa.table({arrow(found).to_pydict()!r}, schema=pa.schema([('id', pa.int64()), ('kind', pa.string()), ('text', pa.string())]))\n"
        f"table = deltalake.DeltaTable({path!r})\n"
        + {
            "append": f"deltalake.write_deltalake({path!r}, found, mode='append')",
            "delete": f"table.delete('id in ({', '.join(str(row[0]) for row in found)})')",
            "merge": "table.merge(found, 't.id = s.id', 's', 't').when_matched_update_all().when_not_matched_insert_all().execute()",
        }[how]
    )
    subprocess.run([sys.executable, "-c", code], check=True)


OTHERS: dict[str, tuple[list[Row], str, bool]] = {
    "rows of other keys": (rows([2000, 2001], "other"), "append", False),
    "a row of the same key": (rows([1000], "other"), "append", True),
    "a change of a file that is kept": (rows([250], "old"), "delete", False),
    "a change of a file that is replaced": (rows([151, 199], "other"), "merge", True),
    "a delete in a file that is replaced": (rows([198], "other"), "delete", True),
}


@pytest.mark.thorough
@pytest.mark.parametrize("other", OTHERS)
def test_what_others_commit_meanwhile_is_kept(
    env: Environment,
    spark: SparkSession,
    path: str,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other's commit comes when all files are ready, right before ours. The result is as if ours had come last."""
    found, how, is_worked_out_again = OTHERS[other]
    commit = PreparedDeltaUpsert.commit

    def after_the_other(self: Any, access: Any) -> None:
        by_another_process(path, found, how)
        commit(self, access)

    monkeypatch.setattr(PreparedDeltaUpsert, "commit", after_the_other)
    new = rows([150, 151, 1000], "new")
    upserted(env, spark.createDataFrame(new, COLUMNS), path)
    old = rows(range(300), "old")
    theirs = (
        [row for row in old if row not in found and row[0] not in {one[0] for one in found}]
        if how == "delete"
        else merged(old, found)
    )
    check(env, spark, path, merged(theirs, new))
    assert ("worked out again" in caplog.text) is is_worked_out_again
    assert not [one for one in deltalake.DeltaTable(path).to_pyarrow_table()["id"].to_pylist() if one is None]


@pytest.mark.thorough
def test_a_later_process_works_out_what_a_journal_tells(env: Environment, spark: SparkSession, path: str) -> None:
    """All it needs is in the record, as a journal keeps it, and in the folder of new rows."""
    new = rows([150, 1000], "new")
    job = DeltaSink(path, mode="upsert", key="id").open(spark)
    job.write(spark.createDataFrame(new, COLUMNS))
    record = job.prepare()
    assert record is not None
    by_another_process(path, rows([151, 1000], "other"), "merge")
    found, access = prepared_of(json.loads(json.dumps(record.as_dict()))), Access(Bridge(spark))
    assert not found.is_committed(access)
    for _ in range(2):
        found.complete(access)
    found.finish(access)
    assert found.is_committed(access)
    check(env, spark, path, merged(rows(range(300), "old"), rows([151], "other"), new))


@pytest.mark.thorough
def test_nothing_is_left_in_the_folder(env: Environment, spark: SparkSession, path: str, tmp_path: Path) -> None:
    upserted(env, spark.createDataFrame(rows([150, 1000], "new"), COLUMNS), path)
    assert not [one for one in (tmp_path / "t").iterdir() if one.name.startswith(("penstock", ".penstock"))]


@pytest.mark.slow
def test_nothing_is_left_of_an_upsert_that_gives_up(
    env: Environment, spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others change the same row before each attempt, so that all but the first are worked out again."""
    others = iter(("one", "two", "three"))

    def late(self: Any, access: Any, table: Any) -> None:
        self.put_in_place(access)
        by_another_process(path, rows([150], next(others)), "merge")
        raise CommitFailedError("another came first")

    monkeypatch.setattr(PreparedDeltaUpsert, "commit_onto", late)
    monkeypatch.setattr(PreparedDeltaUpsert, "pauses", (0.0, 0.0))
    with pytest.raises(JobError, match="another came first"):
        upserted(env, spark.createDataFrame(rows([150, 1000], "new"), COLUMNS), path)
    assert next(others, None) is None, "it was tried three times"
    named = "".join(one.read_text() for one in (tmp_path / "t" / "_delta_log").glob("*.json"))
    there = [one for one in (tmp_path / "t").rglob("*") if one.is_file() and "_delta_log" not in one.parts]
    assert not [one for one in there if one.name not in named]


@pytest.mark.thorough
def test_a_file_that_cannot_be_read_fails_the_job(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    """Spark can be told to leave out such files: of a query its rows would be missing, of an upsert they would be lost."""
    where = tmp_path / "t"
    deltalake.write_deltalake(str(where), arrow(rows(range(10), "old")))
    file = next(where.glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100] + bytes(file.stat().st_size - 100))
    ignored = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    with with_settings(spark, ignored), pytest.raises(JobError):
        upserted(env, spark.createDataFrame(rows([3], "new"), COLUMNS), str(where))
    assert deltalake.DeltaTable(str(where)).version() == 0


KINDS = {
    "date": "date_add(date'2026-01-01', cast(id as int))",
    "timestamp": "timestamp'2026-01-01 00:00:00' + make_interval(0, 0, 0, cast(id as int))",
    "decimal": "cast(id as decimal(38, 10)) / 7",
    "double": "if(id = 3, double('NaN'), id / 3)",
    "binary": "cast(concat('a', id) as binary)",
    "boolean": "id > 0",
    "string": "concat(repeat('long ', 20), id)",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_type(env: Environment, spark: SparkSession, tmp_path: Path, kind: str) -> None:
    where = str(tmp_path / "t")
    count = 2 if kind == "boolean" else 9
    made = spark.range(count).select(F.expr(KINDS[kind]).alias("key"), F.lit("old").alias("text"), "id")
    upserted(env, made, where, key="key")
    upserted(env, made.where("id in (1, 3)").withColumn("text", F.lit("new")), where, key="key")
    found = {(row.id, row.text) for row in env.collect(env.read(DeltaSource(where)))}
    assert found == {(n, "new" if n in {1, 3} else "old") for n in range(count)}


@pytest.mark.thorough
def test_times_are_the_same_moment_in_every_zone(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env, where = make_env(), str(tmp_path / "t")
    for text in ("old", "new"):
        df = spark.createDataFrame([(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), text)], "at timestamp, text string")
        upserted(env, df, where, key="at")
    assert [row.text for row in env.collect(env.read(DeltaSource(where)))] == ["new"]
