"""Upserts into Iceberg tables: rows replace rows with the same key in a single snapshot, beside other writers."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.services import require_module

require_module("pyiceberg", "iceberg")

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from penstock.commit import Access
from penstock.commit.prepared import prepared_from_dict
from penstock.connectors import IcebergSink, IcebergSource
from penstock.connectors.iceberg.upsert import IcebergUpsert, PreparedIcebergUpsert
from penstock.connectors.tables.commit import Key
from penstock.errors import JobError, SinkError
from penstock.spark.bridge.jvm import Bridge
from tests.connectors.iceberg.iceberg_deletes import delete_positions
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Environment

Row = tuple[int, str, str | None]
COLUMNS = "id long, kind string, text string"
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("text", pa.string())])
NUMBERS = itertools.count()


def rows(ids: Iterable[int], text: str) -> list[Row]:
    return [(n, f"k {n % 3}", None if n % 7 == 0 else f"{text}{n}") for n in ids]


def arrow(table_rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in table_rows], SCHEMA)


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ice berg")
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


@pytest.fixture(scope="module")
def catalog(properties: Any) -> Any:
    from pyiceberg.catalog import load_catalog

    iceberg_catalog = load_catalog("default", **properties)
    iceberg_catalog.create_namespace("n")
    return iceberg_catalog


@pytest.fixture(params=[None, "identity", "bucket[4]"], ids=["plain", "identity", "bucket"])
def table(request: pytest.FixtureRequest, catalog: Any) -> Any:
    """A table of three snapshots, with ids from 0 to 299."""
    iceberg_table = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    if request.param is not None:
        from pyiceberg.transforms import parse_transform

        with iceberg_table.update_spec() as change:
            change.add_field("kind" if request.param == "identity" else "id", parse_transform(request.param), "part")
    for part in range(3):
        iceberg_table.append(arrow(rows(range(100 * part, 100 * part + 100), "old")))
    return iceberg_table


def table_name(table: Any) -> str:
    return ".".join(table.name())


def upsert(env: Environment, df: DataFrame, name: str, properties: Any, **options: Any) -> None:
    env.write(df, IcebergSink(name, properties, mode="upsert", key=options.pop("key", "id"), **options))
    env.execute()


def merged(old: Iterable[Row], *new: Iterable[Row]) -> list[Row]:
    by_key = {row[0]: row for row in old}
    for newer in new:
        by_key |= {row[0]: row for row in newer}
    return list(by_key.values())


def check(env: Environment, spark: SparkSession, table: Any, properties: Any, expected: list[Row]) -> None:
    """Check the rows that Penstock, pyiceberg, and plain Spark (from the files of the snapshot) read."""
    assert_same_rows(env.collect(env.read(IcebergSource(table_name(table), properties))), expected)
    table.refresh()
    assert_same_rows([tuple(row.values()) for row in table.scan().to_arrow().to_pylist()], expected)
    files = [task.file.file_path for task in table.scan().plan_files()]
    assert_same_rows(spark.read.parquet(*files).select("id", "kind", "text").collect(), expected)
    for n in (3, 150, 1000):
        matches = table.scan(row_filter=f"id = {n}").to_arrow().num_rows
        assert matches == sum(row[0] == n for row in expected), "the partitions or bounds of files are wrong"


def test_rows_are_replaced_and_added_in_a_single_snapshot(
    env: Environment, spark: SparkSession, table: Any, properties: Any
) -> None:
    before = {task.file.file_path for task in table.scan().plan_files()}
    new = rows([*range(150, 160), *range(1000, 1010)], "new")
    upsert(env, spark.createDataFrame(new, COLUMNS).repartition(3), table_name(table), properties)
    check(env, spark, table, properties, merged(rows(range(300), "old"), new))
    assert len(table.snapshots()) == 4
    assert len(before & {task.file.file_path for task in table.scan().plan_files()}) == 2 * len(before) // 3


@pytest.mark.thorough
def test_rows_with_new_keys_change_no_file(env: Environment, spark: SparkSession, table: Any, properties: Any) -> None:
    before = {task.file.file_path for task in table.scan().plan_files()}
    new = rows(range(1000, 1010), "new")
    upsert(env, spark.createDataFrame(new, COLUMNS), table_name(table), properties)
    check(env, spark, table, properties, merged(rows(range(300), "old"), new))
    assert before < {task.file.file_path for task in table.scan().plan_files()}


@pytest.mark.thorough
def test_an_upsert_creates_or_fills_a_table_and_accepts_an_empty_dataframe(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any
) -> None:
    first = rows(range(20), "a")
    catalog.create_table("n.empty", SCHEMA)
    for name in ("n.new", "n.empty"):
        upsert(env, spark.createDataFrame(first, COLUMNS), name, properties)
        check(env, spark, catalog.load_table(name), properties, first)
        upsert(env, spark.createDataFrame([], COLUMNS), name, properties)
        check(env, spark, catalog.load_table(name), properties, first)


@pytest.mark.thorough
@pytest.mark.parametrize("new", [[(1, "a", "x"), (1, "b", "y")], [(None, "a", "x")]])
def test_duplicate_and_null_keys_are_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any, new: Any
) -> None:
    name = f"n.t{next(NUMBERS)}"
    with pytest.raises((JobError, SinkError), match=r"2 rows for table .* have the key id=1|has no key"):
        upsert(env, spark.createDataFrame(new, COLUMNS), name, properties)
    assert not catalog.table_exists(name)


def test_tables_with_changed_columns_or_deleted_rows_are_refused(
    env: Environment, spark: SparkSession, catalog: Any, properties: Any
) -> None:
    from pyiceberg.types import StringType

    changed = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    with changed.update_schema() as change:
        change.add_column("later", StringType())
    df = spark.range(1).selectExpr("id", "string(raise_error('a row was computed')) as text")
    with pytest.raises(SinkError, match="its columns have changed"):
        upsert(env, df, table_name(changed), properties)
    deleted = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    deleted.append(arrow(rows(range(10), "old")))
    delete_positions(deleted, {next(iter(deleted.scan().plan_files())).file.file_path: [3]})
    with pytest.raises(SinkError, match="files with deleted rows"):
        upsert(env, df, table_name(deleted), properties)


def write_in_subprocess(table: Any, properties: Any, source_rows: list[Row], operation: str) -> None:
    """Write source rows with pyiceberg in a subprocess."""
    ids = ", ".join(str(row[0]) for row in source_rows)
    code = (
        "import pyarrow as pa\n"
        "from pyiceberg.catalog import load_catalog\n"
        f"table = load_catalog('default', **{properties!r}).load_table({table_name(table)!r})\n"
        f"source = pa.Table.from_pylist({arrow(source_rows).to_pylist()!r}, table.schema().as_arrow())\n"
        + {
            "append": "table.append(source)",
            "delete": f"table.delete('id in ({ids})')",
            "merge": f"table.overwrite(source, 'id in ({ids})')",
        }[operation]
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


OTHERS: dict[str, tuple[list[Row], str, bool]] = {
    "rows of other keys": (rows([2000, 2001], "other"), "append", False),
    "a row of the same key": (rows([1000], "other"), "append", True),
    "a change of an unchanged file": (rows([250], "old"), "delete", False),
    "a change of a file that is replaced": (rows([150, 199], "other"), "merge", True),
}


@pytest.mark.thorough
@pytest.mark.parametrize("other", OTHERS)
def test_a_concurrent_commit_is_preserved(
    env: Environment,
    spark: SparkSession,
    table: Any,
    properties: Any,
    other: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The other commit comes right before that of the upsert. The outcome is as if the upsert had started after it."""
    other_rows, operation, is_recomputed = OTHERS[other]
    commit = PreparedIcebergUpsert.commit

    def commit_after_other(self: Any, access: Any) -> None:
        write_in_subprocess(table, properties, other_rows, operation)
        commit(self, access)

    monkeypatch.setattr(PreparedIcebergUpsert, "commit", commit_after_other)
    new = rows([150, 151, 1000], "new")
    upsert(env, spark.createDataFrame(new, COLUMNS), table_name(table), properties)
    old = rows(range(300), "old")
    ids = {row[0] for row in other_rows}
    before_upsert = [row for row in old if row[0] not in ids] if operation == "delete" else merged(old, other_rows)
    check(env, spark, table, properties, merged(before_upsert, new))
    assert ("is recomputed" in caplog.text) is is_recomputed


@pytest.mark.thorough
def test_another_process_completes_an_upsert_from_its_journal_record(
    env: Environment, spark: SparkSession, table: Any, properties: Any
) -> None:
    """The record in the journal and the folder of new rows are sufficient."""
    new = rows([150, 1000], "new")
    job = IcebergSink(table_name(table), properties, mode="upsert", key="id").open(spark)
    job.write(spark.createDataFrame(new, COLUMNS))
    record = job.prepare()
    assert record is not None
    write_in_subprocess(table, properties, rows([151, 1000], "other"), "merge")
    recovered = prepared_from_dict(json.loads(json.dumps(record.as_dict())))
    access = Access(Bridge(spark), dict(job.secrets))
    assert not recovered.is_committed(access)
    for _ in range(2):
        recovered.complete(access)
    recovered.finish(access)
    assert recovered.is_committed(access)
    check(env, spark, table, properties, merged(rows(range(300), "old"), rows([151], "other"), new))


@pytest.mark.parametrize(
    ("columns", "named_column"),
    [
        ({**dict(zip(SCHEMA.names, SCHEMA.types, strict=True)), "more": pa.string()}, "more"),
        ({"id": pa.int64(), "kind": pa.string()}, "text"),
        ({"id": pa.int32(), "kind": pa.string(), "text": pa.string()}, "id"),
    ],
)
def test_changed_columns_are_refused_before_any_row_is_read(
    catalog: Any, properties: Any, columns: dict[str, pa.DataType], named_column: str
) -> None:
    """The table was created or replaced after the job had read its columns. Without a session, no row can be read."""
    replaced = catalog.create_table(f"n.t{next(NUMBERS)}", pa.schema(list(columns.items())))
    written = StructType().add("id", LongType()).add("kind", StringType()).add("text", StringType())
    record = PreparedIcebergUpsert(
        table_name(replaced), "", "", "upsert", written.json(), "", (), "receipt", "", key=("id",), rows="rows"
    )
    message = f"(?s)columns of table .* have changed.*written them: {named_column}\\b"
    with pytest.raises(SinkError, match=message):
        record.fitting(Access(None), replaced)  # type: ignore[arg-type]
    pending = IcebergUpsert(None, Key(("id",), "table"), "rows", written)  # type: ignore[arg-type]
    with pytest.raises(SinkError, match=message):
        pending.write(replaced, None)  # type: ignore[arg-type]
