"""Iceberg tables with equality deletes: they delete older rows with their values, not newer rows."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.services import require_module

require_module("pyiceberg", "iceberg")

import pyarrow as pa
from pyiceberg.manifest import DataFileContent

from penstock.connectors import IcebergSink, IcebergSource
from penstock.connectors.iceberg.files import EqualityDeletes
from penstock.errors import SourceError
from tests.connectors.iceberg.iceberg_deletes import delete_positions, delete_values
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment

Row = tuple[Any, ...]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32()), ("price", pa.float64())])
NUMBERS = itertools.count()
NAN = float("nan")


@pytest.fixture(scope="module")
def properties(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("iceberg")
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


@pytest.fixture(scope="module")
def catalog(properties: Any) -> Any:
    from pyiceberg.catalog import load_catalog

    iceberg_catalog = load_catalog("default", **properties)
    iceberg_catalog.create_namespace("n")
    return iceberg_catalog


def rows(begin: int, count: int = 10) -> list[Row]:
    return [
        (n, None if n % 4 == 0 else f"n{n % 3}", dt.date(2026, 1, 1 + n % 2), NAN if n % 5 == 0 else n / 2)
        for n in range(begin, begin + count)
    ]


def append_rows(table: Any, new_rows: list[Row]) -> None:
    table.append(
        pa.Table.from_pylist([dict(zip(table.schema().column_names, row, strict=True)) for row in new_rows], SCHEMA)
    )


@pytest.fixture
def table(catalog: Any) -> Any:
    """A table of two files with ten rows each."""
    iceberg_table = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    append_rows(iceberg_table, rows(0))
    append_rows(iceberg_table, rows(10))
    return iceberg_table


def table_name(table: Any) -> str:
    return ".".join(table.name())


CASES: dict[str, tuple[dict[str, list[Any]], Any]] = {
    "single column": ({"id": [3, 12, 99]}, lambda row: row[0] in {3, 12}),
    "null": ({"name": [None]}, lambda row: row[1] is None),
    "two columns": (
        {"name": ["n1", None, "n2"], "day": [dt.date(2026, 1, 1), dt.date(2026, 1, 1), None]},
        lambda row: (row[1], row[2].day) in {("n1", 1), (None, 1)},
    ),
    "three columns": (
        {"day": [dt.date(2026, 1, 1)] * 20, "id": list(range(20)), "name": ["n2"] * 20},
        lambda row: row[2].day == 1 and row[1] == "n2",
    ),
    "NaN": ({"price": [NAN, 0.5]}, lambda row: row[0] % 5 == 0 or row[0] == 1),
    "no rows": ({"id": []}, lambda row: False),
}


# Sequence number, spec and partition of a delete; and whether it applies to rows of sequence number 5 in partition a of spec 0.
APPLICABLE = [
    (4, 0, "a", False),
    (5, 0, "a", False),  # same commit: the new rows of an upsert stay
    (6, 0, "a", True),
    (6, 0, "b", False),
    (6, 1, "a", False),
    (6, 2, None, True),  # spec 2 has no partitions
]


@pytest.mark.parametrize(("number", "spec", "partition", "applies"), APPLICABLE)
def test_a_delete_applies_to_older_rows_of_its_partition(
    number: int, spec: int, partition: str | None, *, applies: bool
) -> None:
    rows_file = SimpleNamespace(content=DataFileContent.DATA, file_path="rows", spec_id=0, partition="a")
    delete_file = SimpleNamespace(content=DataFileContent.EQUALITY_DELETES, spec_id=spec, partition=partition)
    delete: Any = SimpleNamespace(data_file=delete_file, sequence_number=number)
    deletes = EqualityDeletes([delete], frozenset({2}))
    data_entry: Any = SimpleNamespace(data_file=rows_file, sequence_number=5)
    assert deletes.register(data_entry)
    assert not deletes.register(delete)
    assert bool(deletes.applicable_to(data_entry.data_file)) == applies


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_rows_are_deleted_by_their_values(env: Environment, properties: Any, table: Any, case: str) -> None:
    deleted, is_gone = CASES[case]
    snapshot_before_delete = table.current_snapshot().snapshot_id
    delete_values(table, **deleted)
    append_rows(table, rows(0))  # newer than the delete
    df = env.read(IcebergSource(table_name(table), properties))
    remaining = [row for row in rows(0, 20) if not is_gone(row)] + rows(0)
    assert_same_rows(env.collect(df), remaining)
    assert_same_rows(env.collect(df.select("price")), [(row[3],) for row in remaining])
    filtered = df.where("day = date'2026-01-01' and name = 'n1'").select("id")
    assert_same_rows(env.collect(filtered), [(row[0],) for row in remaining if row[2].day == 1 and row[1] == "n1"])
    assert env.count(df) == len(remaining)
    assert env.count(env.read(IcebergSource(table_name(table), properties, snapshot_id=snapshot_before_delete))) == 20


def test_position_deletes_and_equality_deletes_combine(env: Environment, properties: Any, table: Any) -> None:
    first = min(table.scan().plan_files(), key=lambda task: task.file.lower_bounds[1]).file.file_path
    delete_positions(table, {first: [0, 1, 2]})
    delete_values(table, id=[5])
    delete_values(table, name=[None])
    delete_positions(table, {first: [9]})
    collected = env.collect(env.read(IcebergSource(table_name(table), properties)))
    deleted_ids = {0, 1, 2, 5, 9}
    assert_same_rows(collected, [row for row in rows(0, 20) if row[0] not in deleted_ids and row[1] is not None])


def test_deletes_by_renamed_or_dropped_columns_still_apply(env: Environment, properties: Any, table: Any) -> None:
    delete_values(table, name=["n1"])
    delete_values(table, day=[dt.date(2026, 1, 1)])
    with table.update_schema() as change:
        change.rename_column("name", "title")
        change.delete_column("day")
    remaining = [row for row in rows(0, 20) if row[1] != "n1" and row[2].day != 1]
    df = env.read(IcebergSource(table_name(table), properties)).select("id")
    assert_same_rows(env.collect(df), [(row[0],) for row in remaining])


def test_a_partition_delete_applies_to_that_partition_only(env: Environment, catalog: Any, properties: Any) -> None:
    from pyiceberg.transforms import DayTransform

    table = catalog.create_table(f"n.t{next(NUMBERS)}", SCHEMA)
    with table.update_spec() as change:
        change.add_field("day", DayTransform())
    append_rows(table, rows(0))
    append_rows(table, rows(0))
    day = (dt.date(2026, 1, 1) - dt.date(1970, 1, 1)).days
    first = next(task.file for task in table.scan().plan_files() if task.file.partition[0] == day)
    delete_positions(table, {first.file_path: [0]}, [day])
    delete_values(table, [day], id=[2, 3])  # row 3 is in another partition
    with table.update_spec() as change:
        change.remove_field("day_day")
    delete_values(table, id=[7])  # an unpartitioned delete applies to all partitions
    append_rows(table, rows(2, 2))
    collected = env.collect(env.read(IcebergSource(table_name(table), properties)))
    remaining = [row for row in rows(0) * 2 if row[0] not in {2, 7}]
    remaining.remove(rows(0)[0])  # deleted in the first file only
    assert_same_rows(collected, remaining + rows(2, 2))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_new_rows_are_written_beside_deleted_rows(
    env: Environment, spark: SparkSession, properties: Any, table: Any, mode: str
) -> None:
    delete_values(table, id=[3, 5, 12])
    new = spark.createDataFrame(rows(0, 4), "id long, name string, day date, price double")
    env.write(new, IcebergSink(table_name(table), properties, mode=mode))
    env.execute()
    remaining = [row for row in rows(0, 20) if row[0] not in {3, 5, 12}] if mode == "append" else []
    assert_same_rows(env.collect(env.read(IcebergSource(table_name(table), properties))), remaining + rows(0, 4))


def test_deletes_by_nested_fields_are_refused(env: Environment, catalog: Any, properties: Any, tmp_path: Path) -> None:
    kind = pa.struct([("x", pa.int64())])
    table = catalog.create_table(f"n.t{next(NUMBERS)}", pa.schema([("s", kind)]))
    table.append(pa.table({"s": pa.array([{"x": 1}], kind)}))
    from pyiceberg.manifest import DataFileContent

    from tests.connectors.iceberg.iceberg_deletes import _commit

    inner = pa.table({"x": [1]}, schema=pa.schema([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "2"})]))
    _commit(table, inner, DataFileContent.EQUALITY_DELETES, [2])
    with pytest.raises(SourceError, match="values of a nested field, whose id is 2"):
        env.count(env.read(IcebergSource(table_name(table), properties)))
