"""Delta tables with column mapping: columns are read by their physical names or ids in the files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.services import require_module

require_module("deltalake", "delta")

import pyarrow as pa

from penstock.connectors import DeltaSink, DeltaSource
from penstock.connectors.delta.files import DeltaColumns
from penstock.errors import JobError, SinkError
from tests.connectors.delta.delta_tables import DeltaLog, rows_by_kernel
from tests.support.equality import assert_same_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock import Environment

MODES = ["name", "id"]


def column(name: str, kind: Any, number: int) -> dict[str, Any]:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def inner(number: int) -> dict[str, Any]:
    fields = [column("x", "long", number + 1), column("id", "string", number + 2), column("later", "long", number + 3)]
    return {"type": "struct", "fields": fields}


FIELDS = [
    column("id", "long", 1),
    column("a.b c", "string", 2),
    column("inner", inner(30), 3),
    column("list", {"type": "array", "elementType": inner(40), "containsNull": True}, 4),
    column("map", {"type": "map", "keyType": "string", "valueType": inner(50), "valueContainsNull": True}, 5),
    column("day", "date", 6),
    column("part", "string", 7),
    column("later", "timestamp", 8),
]


def file_field(name: str, kind: pa.DataType, number: int, mode: str) -> pa.Field:
    """Return a column of a file. In mode id, its name is unrelated to the table."""
    physical_name = f"col-{number}" if mode == "name" else f"file-{name}-{number}"
    return pa.field(physical_name, kind, metadata={"PARQUET:field_id": str(number)})


def rows(mode: str, begin: int) -> pa.Table:
    """Return rows of a file: columns in another order, with a dropped column, without the latest column."""
    ids = range(begin, begin + 20)

    def struct(number: int) -> pa.DataType:
        return pa.struct(
            [file_field("id", pa.string(), number + 2, mode), file_field("x", pa.int64(), number + 1, mode)]
        )

    def value(kind: pa.DataType, text: str | None, n: int) -> dict[str, Any]:
        return {kind.field(0).name: text, kind.field(1).name: n}

    inner_type, element_type, value_type = struct(30), struct(40), struct(50)
    values = {
        file_field("dropped", pa.string(), 99, mode): ["gone"] * 20,
        file_field("day", pa.date32(), 6, mode): [dt.date(2026, 1, 1) + dt.timedelta(n) for n in ids],
        file_field("inner", inner_type, 3, mode): [None if n % 4 == 0 else value(inner_type, f"i{n}", n) for n in ids],
        file_field("list", pa.list_(element_type), 4, mode): [
            None if n % 5 == 0 else [value(element_type, "e", n), None] for n in ids
        ],
        file_field("map", pa.map_(pa.string(), value_type), 5, mode): [
            [("k", value(value_type, None, n))] for n in ids
        ],
        file_field("a.b c", pa.string(), 2, mode): [None if n % 3 == 0 else f"t{n}" for n in ids],
        file_field("id", pa.int64(), 1, mode): list(ids),
    }
    return pa.table(list(values.values()), schema=pa.schema(list(values)))


def expected(begin: int, part: str | None) -> list[tuple[Any, ...]]:
    return [
        (
            n,
            None if n % 3 == 0 else f"t{n}",
            None if n % 4 == 0 else (n, f"i{n}", None),
            None if n % 5 == 0 else [(n, "e", None), None],
            {"k": (n, None, None)},
            dt.date(2026, 1, 1) + dt.timedelta(n),
            part,
            None,
        )
        for n in range(begin, begin + 20)
    ]


def create_table(folder: Path, mode: str) -> DeltaLog:
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"}
    log = DeltaLog(folder, FIELDS, ["part"], configuration, ["columnMapping", "deletionVectors"])
    for begin, part, path in ((0, "a b", "col-7=a b"), (20, None, "col-7=__HIVE_DEFAULT_PARTITION__")):
        log.commit({"add": log.add(rows(mode, begin), {"col-7": part}, path)})
    return log


@pytest.mark.parametrize("mode", MODES)
def test_mapped_columns_are_read_with_their_logical_names(
    make_env: Callable[..., Environment], tmp_path: Path, mode: str
) -> None:
    env, log = make_env(), create_table(tmp_path / "t", mode)
    df = env.read(DeltaSource(str(log.folder)))
    assert df.columns == [field["name"] for field in FIELDS]
    assert_same_rows(env.collect(df), [*expected(0, "a b"), *expected(20, None)])
    assert not any(field.metadata for field in df.schema)
    filtered = df.where("id between 3 and 7 and part = 'a b'").selectExpr(
        "`a.b c`", "inner.id", "list[0].x", "map['k'].x"
    )
    expected_filtered = [
        (None if n % 3 == 0 else f"t{n}", None if n % 4 == 0 else f"i{n}", None if n % 5 == 0 else n, n)
        for n in range(3, 8)
    ]
    assert_same_rows(env.collect(filtered), expected_filtered)
    assert env.count(df.where("part is null")) == 20
    assert env.count(df.where("id > 19")) == 20


def test_delta_kernel_reads_the_same_rows(env: Environment, tmp_path: Path) -> None:
    log = create_table(tmp_path / "t", "name")
    df = env.read(DeltaSource(str(log.folder))).select("id", "`a.b c`", "day", "part")
    kernel_rows = rows_by_kernel(log.folder, 'id, "a.b c", day, part')
    assert_same_rows(env.collect(df), [tuple(row.values()) for row in kernel_rows])


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_deletion_vectors_apply_to_mapped_columns(env: Environment, tmp_path: Path, mode: str) -> None:
    log = create_table(tmp_path / "t", mode)
    added = log.add(rows(mode, 40), {"col-7": "z"}, "xy")
    log.commit({"add": added})
    log.delete(added, [0, 19])
    df = env.read(DeltaSource(str(log.folder)))
    assert_same_rows(env.collect(df), [*expected(0, "a b"), *expected(20, None), *expected(40, "z")[1:-1]])
    assert env.count(df.where("part = 'z' and inner is null")) == 4


@pytest.mark.thorough
def test_a_file_without_field_ids_is_an_error(env: Environment, tmp_path: Path) -> None:
    log = create_table(tmp_path / "t", "id")
    log.commit({"add": log.add(pa.table({"col-1": [1]}), {"col-7": None})})
    with pytest.raises(JobError, match="column mapping by id has no ids"):
        env.collect(env.read(DeltaSource(str(log.folder))))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("write_mode", ["append", "overwrite"])
def test_writes_to_mapped_columns_are_refused_before_any_row_is_computed(
    env: Environment, spark: SparkSession, tmp_path: Path, mode: str, write_mode: str
) -> None:
    log = create_table(tmp_path / "t", mode)
    df = spark.range(3).selectExpr("raise_error('a row was computed') as id")
    env.write(df, DeltaSink(str(log.folder), mode=write_mode))
    with pytest.raises(SinkError, match="column mapping by"):
        env.execute()
    assert len(rows_by_kernel(log.folder, "id")) == 40 if mode == "name" else log.version == 3


def test_schemas_without_column_mapping_are_unchanged() -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    schema = StructType([StructField("id", LongType(), True, {"comment": "c"})])
    columns = DeltaColumns(schema)
    assert columns.schema is schema
    assert columns.physical_schema is schema
    assert columns.physical_name("id") == "id"
