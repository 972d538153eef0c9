"""Delta tables with column mapping: columns are found by the names, or numbers, that they have in files."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from tests.services import needed_module

needed_module("deltalake", "delta")

import pyarrow as pa

from penstock.connectors import DeltaSink, DeltaSource
from penstock.connectors.delta_columns import DeltaColumns
from penstock.errors import JobError, SinkError
from tests.connectors.delta_tables import DeltaLog, rows_by_kernel
from tests.equality import assert_same_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def files_field(name: str, kind: pa.DataType, number: int, mode: str) -> pa.Field:
    """A column as a file has it. By id the name is one that the table never had."""
    called = f"col-{number}" if mode == "name" else f"file-{name}-{number}"
    return pa.field(called, kind, metadata={"PARQUET:field_id": str(number)})


def rows(mode: str, begin: int) -> pa.Table:
    """Columns in another order than the table's, one that the table does not have any more, and none of the newest."""
    ids = range(begin, begin + 20)

    def struct(number: int) -> pa.DataType:
        return pa.struct(
            [files_field("id", pa.string(), number + 2, mode), files_field("x", pa.int64(), number + 1, mode)]
        )

    def value(kind: pa.DataType, text: str | None, n: int) -> dict[str, Any]:
        return {kind.field(0).name: text, kind.field(1).name: n}

    one, many, mapped = struct(30), struct(40), struct(50)
    values = {
        files_field("dropped", pa.string(), 99, mode): ["gone"] * 20,
        files_field("day", pa.date32(), 6, mode): [dt.date(2026, 1, 1) + dt.timedelta(n) for n in ids],
        files_field("inner", one, 3, mode): [None if n % 4 == 0 else value(one, f"i{n}", n) for n in ids],
        files_field("list", pa.list_(many), 4, mode): [
            None if n % 5 == 0 else [value(many, "e", n), None] for n in ids
        ],
        files_field("map", pa.map_(pa.string(), mapped), 5, mode): [[("k", value(mapped, None, n))] for n in ids],
        files_field("a.b c", pa.string(), 2, mode): [None if n % 3 == 0 else f"t{n}" for n in ids],
        files_field("id", pa.int64(), 1, mode): list(ids),
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


def made(folder: Path, mode: str) -> DeltaLog:
    configuration = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "99"}
    log = DeltaLog(folder, FIELDS, ["part"], configuration, ["columnMapping", "deletionVectors"])
    for begin, part, path in ((0, "a b", "col-7=a b"), (20, None, "col-7=__HIVE_DEFAULT_PARTITION__")):
        log.commit({"add": log.add(rows(mode, begin), {"col-7": part}, path)})
    return log


@pytest.mark.parametrize("mode", MODES)
def test_columns_come_back_by_their_own_names(make_env: Callable[..., Environment], tmp_path: Path, mode: str) -> None:
    env, log = make_env(), made(tmp_path / "t", mode)
    df = env.read(DeltaSource(str(log.folder)))
    assert df.columns == [one["name"] for one in FIELDS]
    assert_same_rows(env.collect(df), [*expected(0, "a b"), *expected(20, None)])
    assert not any(one.metadata for one in df.schema)
    few = df.where("id between 3 and 7 and part = 'a b'").selectExpr("`a.b c`", "inner.id", "list[0].x", "map['k'].x")
    wanted = [
        (None if n % 3 == 0 else f"t{n}", None if n % 4 == 0 else f"i{n}", None if n % 5 == 0 else n, n)
        for n in range(3, 8)
    ]
    assert_same_rows(env.collect(few), wanted)
    assert env.count(df.where("part is null")) == 20
    assert env.count(df.where("id > 19")) == 20


def test_kernel_finds_the_same_rows(env: Environment, tmp_path: Path) -> None:
    log = made(tmp_path / "t", "name")
    df = env.read(DeltaSource(str(log.folder))).select("id", "`a.b c`", "day", "part")
    theirs = rows_by_kernel(log.folder, 'id, "a.b c", day, part')
    assert_same_rows(env.collect(df), [tuple(row.values()) for row in theirs])


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_deleted_rows_of_mapped_columns(env: Environment, tmp_path: Path, mode: str) -> None:
    log = made(tmp_path / "t", mode)
    added = log.add(rows(mode, 40), {"col-7": "z"}, "xy")
    log.commit({"add": added})
    log.delete(added, [0, 19])
    df = env.read(DeltaSource(str(log.folder)))
    assert_same_rows(env.collect(df), [*expected(0, "a b"), *expected(20, None), *expected(40, "z")[1:-1]])
    assert env.count(df.where("part = 'z' and inner is null")) == 4


@pytest.mark.thorough
def test_a_file_without_ids_is_refused(env: Environment, tmp_path: Path) -> None:
    log = made(tmp_path / "t", "id")
    log.commit({"add": log.add(pa.table({"col-1": [1]}), {"col-7": None})})
    with pytest.raises(JobError, match="column mapping by id has no ids"):
        env.collect(env.read(DeltaSource(str(log.folder))))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["append", "overwrite"])
def test_a_sink_refuses_mapped_columns_before_any_row(
    env: Environment, spark: SparkSession, tmp_path: Path, mode: str, how: str
) -> None:
    log = made(tmp_path / "t", mode)
    rows_ = spark.range(3).selectExpr("raise_error('a row was made') as id")
    env.write(rows_, DeltaSink(str(log.folder), mode=how))
    with pytest.raises(SinkError, match="column mapping by"):
        env.execute()
    assert len(rows_by_kernel(log.folder, "id")) == 40 if mode == "name" else log.version == 3


def test_tables_without_mapping_stay_as_they_are() -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    told = StructType([StructField("id", LongType(), True, {"comment": "c"})])
    columns = DeltaColumns(told)
    assert columns.schema is told
    assert columns.in_files is told
    assert columns.in_file("id") == "id"
