"""Upserts into Delta tables: rows replace rows with the same key in a single commit, beside other writers."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.support.services import require_module

require_module("deltalake", "delta")

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from penstock.commit import Access
from penstock.commit.prepared import prepared_from_dict
from penstock.connectors import DeltaSink, DeltaSource
from penstock.connectors.delta.commit import PreparedDeltaUpsert
from penstock.errors import JobError, SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans.dataframes import with_settings
from tests.connectors.delta.delta_tables import rows_by_kernel
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

Row = tuple[int, str, str | None]
COLUMNS = "id long, kind string, text string"


def rows(ids: Iterable[int], text: str) -> list[Row]:
    return [(n, f"k {n % 3}", None if n % 7 == 0 else f"{text}{n}") for n in ids]


def arrow(table_rows: list[Row]) -> pa.Table:
    ids, kinds, texts = zip(*table_rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "kind": list(kinds), "text": pa.array(texts, pa.string())})


@pytest.fixture(params=[[], ["kind"]], ids=["plain", "parted"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A table of three commits, with ids from 0 to 299."""
    folder = str(tmp_path / "t")
    for part in range(3):
        by = request.param or None
        deltalake.write_deltalake(
            folder, arrow(rows(range(100 * part, 100 * part + 100), "old")), mode="append", partition_by=by
        )
    return folder


def upsert(env: Environment, df: DataFrame, path: str, **options: Any) -> None:
    env.write(df, DeltaSink(path, mode="upsert", key=options.pop("key", "id"), **options))
    env.execute()


def merged(old: Iterable[Row], *new: Iterable[Row]) -> list[Row]:
    by_key = {row[0]: row for row in old}
    for newer in new:
        by_key |= {row[0]: row for row in newer}
    return list(by_key.values())


def check(env: Environment, spark: SparkSession, path: str, expected: list[Row]) -> None:
    """Check the rows that Penstock, deltalake, and plain Spark (from the files of the log) read."""
    assert_same_rows(env.collect(env.read(DeltaSource(path)).select("id", "kind", "text")), expected)
    assert_same_rows([tuple(row.values()) for row in rows_by_kernel(path, "id, kind, text")], expected)  # type: ignore[arg-type]
    files = deltalake.DeltaTable(path).file_uris()
    plain = spark.read.option("basePath", path).parquet(*[f"file:{uri.removeprefix('file://')}" for uri in files])
    assert_same_rows(plain.select("id", "kind", "text").collect(), expected)


def test_rows_are_replaced_and_added_in_a_single_commit(env: Environment, spark: SparkSession, path: str) -> None:
    table = deltalake.DeltaTable(path)
    version, before = table.version(), set(table.file_uris())
    new = rows([*range(150, 160), *range(1000, 1010)], "new")
    upsert(env, spark.createDataFrame(new, COLUMNS).repartition(3), path)
    check(env, spark, path, merged(rows(range(300), "old"), new))
    table = deltalake.DeltaTable(path)
    assert table.version() == version + 1
    unchanged = before & set(table.file_uris())
    per_commit = len(before) // 3
    assert len(unchanged) == 2 * per_commit, "files without replaced rows stay"
    assert table.metadata().partition_columns in ([], ["kind"])


@pytest.mark.thorough
def test_rows_with_new_keys_change_no_file(env: Environment, spark: SparkSession, path: str) -> None:
    before = set(deltalake.DeltaTable(path).file_uris())
    new = rows(range(1000, 1010), "new")
    upsert(env, spark.createDataFrame(new, COLUMNS), path)
    check(env, spark, path, merged(rows(range(300), "old"), new))
    assert before < set(deltalake.DeltaTable(path).file_uris())


@pytest.mark.thorough
def test_composite_keys_missing_columns_and_rows_that_change_partition(
    env: Environment, spark: SparkSession, path: str
) -> None:
    new = spark.createDataFrame([(5, "k 2"), (5, "k 0"), (6, "k 0")], "ID int, kind string")
    upsert(env, new, path, key=["Id", "kind"])
    expected = [row for row in rows(range(300), "old") if row[0] not in {5, 6}]
    check(env, spark, path, [*expected, (5, "k 2", None), (5, "k 0", None), (6, "k 0", None)])
    upsert(env, spark.createDataFrame([(6, "k 1", "moved")], COLUMNS), path)
    check(env, spark, path, [*expected, (5, "k 2", None), (5, "k 0", None), (6, "k 1", "moved")])


@pytest.mark.thorough
def test_an_upsert_creates_a_table_and_accepts_an_empty_dataframe(
    env: Environment, spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "new")
    first = rows(range(20), "a")
    upsert(env, spark.createDataFrame(first, COLUMNS), path, partition_by="kind")
    check(env, spark, path, first)
    upsert(env, spark.createDataFrame([], COLUMNS), path)
    check(env, spark, path, first)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ([(1, "a", "x"), (2, "a", "x"), (1, "b", "y")], r"2 rows for table .* have the key id=1"),
        ([(1, "a", "x"), (None, "a", "x")], r"a row for table .* has no key"),
    ],
)
def test_duplicate_and_null_keys_are_refused(
    env: Environment, spark: SparkSession, path: str, new: Any, message: str
) -> None:
    version = deltalake.DeltaTable(path).version()
    with pytest.raises((JobError, SinkError), match=message):
        upsert(env, spark.createDataFrame(new, COLUMNS), path)
    assert deltalake.DeltaTable(path).version() == version


@pytest.mark.parametrize(
    ("key", "message"), [("none", "a column none that the table does not have"), (["id", "id"], "a column id twice")]
)
def test_bad_key_columns_are_refused_before_any_row_is_computed(
    env: Environment, spark: SparkSession, path: str, key: Any, message: str
) -> None:
    df = spark.range(1).selectExpr("id", "'k' as kind", "raise_error('a row was computed') as text")
    with pytest.raises(SinkError, match=message):
        upsert(env, df, path, key=key)


def test_a_key_and_mode_upsert_require_each_other() -> None:
    with pytest.raises(SinkError, match="mode upsert needs a key"):
        DeltaSink("x", mode="upsert")
    with pytest.raises(SinkError, match="mode upsert needs a key"):
        DeltaSink("x", key="id")


def test_tables_with_a_change_data_feed_are_refused(env: Environment, spark: SparkSession, path: str) -> None:
    deltalake.DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    df = spark.range(1).selectExpr("id", "'k' as kind", "raise_error('a row was computed') as text")
    with pytest.raises(SinkError, match="records the changes"):
        upsert(env, df, path)


@pytest.mark.thorough
def test_a_second_upsert_with_the_same_token_is_skipped(env: Environment, spark: SparkSession, path: str) -> None:
    for text in ("new", "again"):
        upsert(env, spark.createDataFrame(rows([1], text), COLUMNS), path, token="monday")
    check(env, spark, path, merged(rows(range(300), "old"), rows([1], "new")))


def write_in_subprocess(path: str, source_rows: list[Row], operation: str) -> None:
    """Write source rows with deltalake in a subprocess."""
    code = (
        "import deltalake, pyarrow as pa\n"
        f"source = pa.table({arrow(source_rows).to_pydict()!r}, schema=pa.schema([('id', pa.int64()), ('kind', pa.string()), ('text', pa.string())]))\n"
        f"table = deltalake.DeltaTable({path!r})\n"
        + {
            "append": f"deltalake.write_deltalake({path!r}, source, mode='append')",
            "delete": f"table.delete('id in ({', '.join(str(row[0]) for row in source_rows)})')",
            "merge": "table.merge(source, 't.id = s.id', 's', 't').when_matched_update_all().when_not_matched_insert_all().execute()",
        }[operation]
    )
    subprocess.run([sys.executable, "-c", code], check=True)


OTHERS: dict[str, tuple[list[Row], str, bool]] = {
    "rows of other keys": (rows([2000, 2001], "other"), "append", False),
    "a row of the same key": (rows([1000], "other"), "append", True),
    "a change of an unchanged file": (rows([250], "old"), "delete", False),
    "a change of a file that is replaced": (rows([151, 199], "other"), "merge", True),
    "a delete in a file that is replaced": (rows([198], "other"), "delete", True),
}


@pytest.mark.thorough
@pytest.mark.parametrize("other", OTHERS)
def test_a_concurrent_commit_is_preserved(
    env: Environment,
    spark: SparkSession,
    path: str,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other commit comes right before that of the upsert. The outcome is as if the upsert had started after it."""
    other_rows, operation, is_recomputed = OTHERS[other]
    commit = PreparedDeltaUpsert.commit

    def commit_after_other(self: Any, access: Any) -> None:
        write_in_subprocess(path, other_rows, operation)
        commit(self, access)

    monkeypatch.setattr(PreparedDeltaUpsert, "commit", commit_after_other)
    new = rows([150, 151, 1000], "new")
    upsert(env, spark.createDataFrame(new, COLUMNS), path)
    old = rows(range(300), "old")
    before_upsert = (
        [row for row in old if row not in other_rows and row[0] not in {deleted[0] for deleted in other_rows}]
        if operation == "delete"
        else merged(old, other_rows)
    )
    check(env, spark, path, merged(before_upsert, new))
    assert ("is recomputed" in caplog.text) is is_recomputed
    assert None not in deltalake.DeltaTable(path).to_pyarrow_table()["id"].to_pylist()


@pytest.mark.thorough
def test_another_process_completes_an_upsert_from_its_journal_record(
    env: Environment, spark: SparkSession, path: str
) -> None:
    """The record in the journal and the folder of new rows are sufficient."""
    new = rows([150, 1000], "new")
    job = DeltaSink(path, mode="upsert", key="id").open(spark)
    job.write(spark.createDataFrame(new, COLUMNS))
    record = job.prepare()
    assert record is not None
    write_in_subprocess(path, rows([151, 1000], "other"), "merge")
    recovered, access = prepared_from_dict(json.loads(json.dumps(record.as_dict()))), Access(Bridge(spark))
    assert not recovered.is_committed(access)
    for _ in range(2):
        recovered.complete(access)
    recovered.finish(access)
    assert recovered.is_committed(access)
    check(env, spark, path, merged(rows(range(300), "old"), rows([151], "other"), new))


@pytest.mark.thorough
def test_an_upsert_leaves_no_temporary_files(env: Environment, spark: SparkSession, path: str, tmp_path: Path) -> None:
    upsert(env, spark.createDataFrame(rows([150, 1000], "new"), COLUMNS), path)
    assert not [file for file in (tmp_path / "t").iterdir() if file.name.startswith(("penstock", ".penstock"))]


@pytest.mark.slow
def test_an_upsert_that_gives_up_leaves_no_files(
    env: Environment, spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer changes the same row before each attempt, so each later attempt recomputes the upsert."""
    others = iter(("one", "two", "three"))

    def lose_race(self: Any, access: Any, table: Any) -> None:
        self.move_staged_files(access)
        write_in_subprocess(path, rows([150], next(others)), "merge")
        raise CommitFailedError("another came first")

    monkeypatch.setattr(PreparedDeltaUpsert, "commit_onto", lose_race)
    monkeypatch.setattr(PreparedDeltaUpsert, "retry_pauses", (0.0, 0.0))
    with pytest.raises(JobError, match="another came first"):
        upsert(env, spark.createDataFrame(rows([150, 1000], "new"), COLUMNS), path)
    assert next(others, None) is None, "there were three attempts"
    log = "".join(file.read_text() for file in (tmp_path / "t" / "_delta_log").glob("*.json"))
    files = [file for file in (tmp_path / "t").rglob("*") if file.is_file() and "_delta_log" not in file.parts]
    assert not [file for file in files if file.name not in log]


@pytest.mark.thorough
def test_a_corrupt_file_fails_the_upsert(env: Environment, spark: SparkSession, tmp_path: Path) -> None:
    """An upsert would lose the rows of corrupt files that Spark is set to skip."""
    path = tmp_path / "t"
    deltalake.write_deltalake(str(path), arrow(rows(range(10), "old")))
    file = next(path.glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:100] + bytes(file.stat().st_size - 100))
    skip_settings = {"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"}
    with with_settings(spark, skip_settings), pytest.raises(JobError):
        upsert(env, spark.createDataFrame(rows([3], "new"), COLUMNS), str(path))
    assert deltalake.DeltaTable(str(path)).version() == 0


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
def test_columns_of_many_types_can_be_keys(env: Environment, spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "t")
    count = 2 if kind == "boolean" else 9
    df = spark.range(count).select(F.expr(KINDS[kind]).alias("key"), F.lit("old").alias("text"), "id")
    upsert(env, df, path, key="key")
    upsert(env, df.where("id in (1, 3)").withColumn("text", F.lit("new")), path, key="key")
    texts = {(row.id, row.text) for row in env.collect(env.read(DeltaSource(path)))}
    assert texts == {(n, "new" if n in {1, 3} else "old") for n in range(count)}


@pytest.mark.thorough
def test_timestamp_keys_match_by_instant(
    make_env: Callable[..., Environment], spark: SparkSession, tmp_path: Path
) -> None:
    env, path = make_env(), str(tmp_path / "t")
    for text in ("old", "new"):
        df = spark.createDataFrame([(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), text)], "at timestamp, text string")
        upsert(env, df, path, key="at")
    assert [row.text for row in env.collect(env.read(DeltaSource(path)))] == ["new"]
