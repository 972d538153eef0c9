"""Upserts into Iceberg tables: rows replace those with their key, in one snapshot, whatever other writers do meanwhile."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.services import needed_module

needed_module("pyiceberg", "iceberg")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from penstock.commit import Access
from penstock.commit.prepared import prepared_of
from penstock.connectors import IcebergSink, IcebergSource
from penstock.connectors.iceberg_upsert import IcebergUpsert, PreparedIcebergUpsert
from penstock.connectors.upsert import Key
from penstock.errors import JobError, SinkError
from penstock.spark.jvm import Bridge
from tests.connectors.iceberg_deletes import delete_positions
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

Row = tuple[int, str, str | None]
COLUMNS = "id long, kind string, text string"
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("text", pa.string())])
NUMBERS = itertools.count()


def rows(ids: Iterable[int], text: str) -> list[Row]:
    return [(n, f"k {n % 3}", None if n % 7 == 0 else f"{text}{n}") for n in ids]


def arrow(found: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ice berg")
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


@pytest.fixture(scope="module")
def catalog(properties: Any) -> Any:
    from pyiceberg.catalog import load_catalog

    found = load_catalog("default", **properties)
    found.create_namespace("n")
    return found


@pytest.fixture(params=[None, "identity", "bucket[4]"], ids=["plain", "identity", "bucket"])
def table(request: pytest.FixtureRequest, catalog: Any) -> Any:
    """A table of three snapshots, with ids from 0 to 299."""
    made = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    if request.param is not None:
        from pyiceberg.transforms import parse_transform

        with made.update_spec() as change:
            change.add_field("kind" if request.param == "identity" else "id", parse_transform(request.param), "part")
    for part in range(3):
        made.append(arrow(rows(range(100 * part, 100 * part + 100), "old")))
    return made


def name_of(table: Any) -> str:
    return ".".join(table.name())


def upserted(env: Environment, df: DataFrame, name: str, properties: Any, **options: Any) -> None:
    env.write(df, IcebergSink(name, properties, mode="upsert", key=options.pop("key", "id"), **options))
    env.execute()


def merged(old: Iterable[Row], *new: Iterable[Row]) -> list[Row]:
    found = {row[0]: row for row in old}
    for one in new:
        found |= {row[0]: row for row in one}
    return list(found.values())


def check(env: Environment, spark: SparkSession, table: Any, properties: Any, expected: list[Row]) -> None:
    """Compare the rows as Penstock reads them, as pyiceberg does, and as plain Spark reads the files of the snapshot."""
    assert_same_rows(env.collect(env.read(IcebergSource(name_of(table), properties))), expected)
    table.refresh()
    assert_same_rows([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()], expected)
    files = [task.file.file_path for task in table.scan().plan_files()]
    assert_same_rows(spark.read.parquet(*files).select("id", "kind", "text").collect(), expected)
    for n in (3, 150, 1000):
        found = table.scan(row_filter=f"id = {n}").to_arrow().num_rows
        assert found == sum(row[0] == n for row in expected), "entries of files with wrong partitions or bounds"


def test_rows_are_replaced_and_added_in_one_snapshot(
    env: Environment, spark: SparkSession, table: Any, properties: Any
) -> None:
    before = {task.file.file_path for task in table.scan().plan_files()}
    new = rows([*range(150, 160), *range(1000, 1010)], "new")
    upserted(env, spark.createDataFrame(new, COLUMNS).repartition(3), name_of(table), properties)
    check(env, spark, table, properties, merged(rows(range(300), "old"), new))
    assert len(table.snapshots()) == 4
    assert len(before & {task.file.file_path for task in table.scan().plan_files()}) == 2 * len(before) // 3


@pytest.mark.thorough
def test_rows_that_only_come_change_no_file(env: Environment, spark: SparkSession, table: Any, properties: Any) -> None:
    before = {task.file.file_path for task in table.scan().plan_files()}
    new = rows(range(1000, 1010), "new")
    upserted(env, spark.createDataFrame(new, COLUMNS), name_of(table), properties)
    check(env, spark, table, properties, merged(rows(range(300), "old"), new))
    assert before < {task.file.file_path for task in table.scan().plan_files()}


@pytest.mark.thorough
def test_a_new_table_an_empty_one_and_no_rows(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any
) -> None:
    first = rows(range(20), "a")
    catalog.create_table("n.empty", SCHEMA)
    for name in ("n.made", "n.empty"):
        upserted(env, spark.createDataFrame(first, COLUMNS), name, properties)
        check(env, spark, catalog.load_table(name), properties, first)
        upserted(env, spark.createDataFrame([], COLUMNS), name, properties)
        check(env, spark, catalog.load_table(name), properties, first)


@pytest.mark.thorough
@pytest.mark.parametrize("new", [[(1, "a", "x"), (1, "b", "y")], [(None, "a", "x")]])
def test_keys_that_tell_no_rows_apart_are_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, new: Any
) -> None:
    name = f"n.t{next(NUMBERS)}"
    with pytest.raises((JobError, SinkError), match=r"2 rows for table .* have the key id=1|has no key"):
        upserted(env, spark.createDataFrame(new, COLUMNS), name, properties)
    assert not catalog.table_exists(name)


def test_tables_that_cannot_be_written_anew_are_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any
) -> None:
    from pyiceberg.types import StringType

    changed = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    with changed.update_schema() as change:
        change.add_column("later", StringType())
    df = spark.range(1).selectExpr("id", "string(raise_error('a row was made')) as text")
    with pytest.raises(SinkError, match="its columns have changed"):
        upserted(env, df, name_of(changed), properties)
    deleted = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    deleted.append(arrow(rows(range(10), "old")))
    delete_positions(deleted, {next(iter(deleted.scan().plan_files())).file.file_path: [3]})
    with pytest.raises(SinkError, match="files with deleted rows"):
        upserted(env, df, name_of(deleted), properties)


def by_another_process(table: Any, properties: Any, found: list[Row], how: str) -> None:
    """Write with pyiceberg alone, in a process of its own."""
    ids = ", ".join(str(row[0]) for row in found)
    code = (
        "import pyarrow as pa\n"
        "from pyiceberg.catalog import load_catalog\n"
        f"table = load_catalog('default', **{properties!r}).load_table({name_of(table)!r})\n"
        f"found = pa.Table.from_pylist({arrow(found).to_pylist()!r}, table.schema().as_arrow())\n"
        + {
            "append": "table.append(found)",
            "delete": f"table.delete('id in ({ids})')",
            "merge": f"table.overwrite(found, 'id in ({ids})')",
        }[how]
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


OTHERS: dict[str, tuple[list[Row], str, bool]] = {
    "rows of other keys": (rows([2000, 2001], "other"), "append", False),
    "a row of the same key": (rows([1000], "other"), "append", True),
    "a change of a file that is kept": (rows([250], "old"), "delete", False),
    "a change of a file that is replaced": (rows([150, 199], "other"), "merge", True),
}


@pytest.mark.thorough
@pytest.mark.parametrize("other", OTHERS)
def test_what_others_commit_meanwhile_is_kept(
    env: Environment,
    spark: SparkSession,
    table: Any,
    properties: Any,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other's snapshot comes when all files are ready, right before ours. The result is as if ours had come last."""
    found, how, is_worked_out_again = OTHERS[other]
    commit = PreparedIcebergUpsert.commit

    def after_the_other(self: Any, access: Any) -> None:
        by_another_process(table, properties, found, how)
        commit(self, access)

    monkeypatch.setattr(PreparedIcebergUpsert, "commit", after_the_other)
    new = rows([150, 151, 1000], "new")
    upserted(env, spark.createDataFrame(new, COLUMNS), name_of(table), properties)
    old = rows(range(300), "old")
    ids = {row[0] for row in found}
    theirs = [row for row in old if row[0] not in ids] if how == "delete" else merged(old, found)
    check(env, spark, table, properties, merged(theirs, new))
    assert ("worked out again" in caplog.text) is is_worked_out_again


@pytest.mark.thorough
def test_a_later_process_works_out_what_a_journal_tells(
    env: Environment, spark: SparkSession, table: Any, properties: Any
) -> None:
    """All it needs is in the record, as a journal keeps it, and in the folder of new rows."""
    new = rows([150, 1000], "new")
    job = IcebergSink(name_of(table), properties, mode="upsert", key="id").open(spark)
    job.write(spark.createDataFrame(new, COLUMNS))
    record = job.prepare()
    assert record is not None
    by_another_process(table, properties, rows([151, 1000], "other"), "merge")
    found, access = prepared_of(json.loads(json.dumps(record.as_dict()))), Access(Bridge(spark), dict(job.secrets))
    assert not found.is_committed(access)
    for _ in range(2):
        found.complete(access)
    found.finish(access)
    assert found.is_committed(access)
    check(env, spark, table, properties, merged(rows(range(300), "old"), rows([151], "other"), new))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({**dict(zip(SCHEMA.names, SCHEMA.types, strict=True)), "more": pa.string()}, "more"),
        ({"id": pa.int64(), "kind": pa.string()}, "text"),
        ({"id": pa.int32(), "kind": pa.string(), "text": pa.string()}, "id"),
    ],
)
def test_a_table_with_other_columns_is_refused_before_any_row_is_worked_out(
    catalog: Any, properties: Any, columns: dict[str, pa.DataType], named: str
) -> None:
    """It has appeared, or was made anew, after the job looked at it. There is no session: nothing may be read."""
    made = catalog.create_table(f"n.t{next(NUMBERS)}", pa.schema(list(columns.items())))
    written = StructType().add("id", LongType()).add("kind", StringType()).add("text", StringType())
    record = PreparedIcebergUpsert(
        name_of(made), "", "", "upsert", written.json(), "", (), "receipt", "", key=("id",), rows="rows"
    )
    message = f"(?s)columns of table .* have changed.*written them: {named}\\b"
    with pytest.raises(SinkError, match=message):
        record.fitting(Access(None), made)  # type: ignore[arg-type]
    upsert = IcebergUpsert(None, Key(("id",), "table"), "rows", written)  # type: ignore[arg-type]
    with pytest.raises(SinkError, match=message):
        upsert.write(made, None, None)  # type: ignore[arg-type]
