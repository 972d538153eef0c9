"""The rows that a worker computes from ranges of files, and the files that it refuses."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.worker import PartFunction

ROWS = 1000
MEMORY = 64 << 20
PLAIN = "SELECT id AS c1, price AS c2 FROM scan"
READ = (Column("id", "bigint"), Column("price", "decimal(15,2)"))
OUTPUT = (Column("c1", "bigint"), Column("c2", "decimal(15,2)"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a b'c.parquet"
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "price": pa.array([Decimal(cents) / 100 for cents in range(ROWS)], pa.decimal128(15, 2)),
            "day": pa.array([dt.date(2026, 11, 1)] * ROWS, pa.date32()),
            "Day": pa.array([1] * ROWS, pa.int32()),
        }
    )
    pq.write_table(table, path, row_group_size=90)
    return path


def ranges(path: Path, tasks: int) -> list[FileRange]:
    status = path.stat()
    length = -(-status.st_size // tasks)
    modified = status.st_mtime_ns // 1_000_000
    return [FileRange(f"file:{path}", i * length, length, modified, status.st_size) for i in range(tasks)]


def function(
    sql: str, read: tuple[Column, ...], output: tuple[Column, ...], calendar: str = "CORRECTED"
) -> PartFunction:
    return PartFunction(sql, output, MEMORY, Files(read, calendar))


def rows(leaf: PartFunction, files: Sequence[FileRange]) -> list[dict[str, Any]]:
    return [row for batch in leaf.rows(list(files)) for row in batch.to_pylist()]


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 11, 40])
def test_every_row_is_read_by_a_single_task(file: Path, tasks: int) -> None:
    leaf = function(PLAIN, READ, OUTPUT)
    values = [(row["c1"], row["c2"]) for file_range in ranges(file, tasks) for row in rows(leaf, [file_range])]
    assert values == [(number, number) for number in range(ROWS)]  # prices are sent as cents


def test_a_task_reads_several_ranges(file: Path) -> None:
    sums = function("SELECT count(*) AS c1 FROM scan", (), (Column("c1", "bigint"),))
    parts = ranges(file, 5)
    assert rows(sums, [parts[0], *parts[3:]]) == [
        {"c1": ROWS - sum(rows(sums, [part])[0]["c1"] for part in parts[1:3])}
    ]


def test_a_task_without_a_row_group_has_no_rows(file: Path) -> None:
    (whole,) = ranges(file, 1)
    nothing = [FileRange(whole.path, 0, 1, whole.modified_ms, whole.size)]
    sums = function("SELECT count(id) AS c1, max(price) AS c2 FROM scan", READ, OUTPUT)
    assert rows(function(PLAIN, READ, OUTPUT), nothing) == []
    assert rows(sums, nothing) == [{"c1": 0, "c2": None}]


def test_a_stage_reads_its_files_from_json(file: Path) -> None:
    texts = [
        json.dumps([{name: getattr(file_range, name) for name in FileRange.__slots__}])
        for file_range in ranges(file, 2)
    ]
    batches = [pa.record_batch({"files": pa.array([text])}) for text in texts]
    ids = [row["c1"] for batch in function(PLAIN, READ, OUTPUT)(iter(batches)) for row in batch.to_pylist()]
    assert ids == list(range(ROWS))


REFUSED = {
    "another type": ((Column("id", "int"),), "id is int64"),
    "a column that is missing": ((Column("missing", "int"),), "has no column missing"),
    "names that differ by their case only": ((Column("day", "date"),), "has a column day that DuckDB renames"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_files_that_differ_from_the_table_are_refused(file: Path, case: str) -> None:
    read, message = REFUSED[case]
    leaf = function("SELECT 1 AS c1 FROM scan", read, (Column("c1", "int"),))
    with pytest.raises(NotNativeError, match=message):
        rows(leaf, ranges(file, 1))


def test_a_file_that_has_changed_since_is_refused(file: Path) -> None:
    planned = ranges(file, 1)
    os.utime(file, (1, 1))
    with pytest.raises(NotNativeError, match="has changed since the query was planned"):
        rows(function(PLAIN, READ, OUTPUT), planned)
    file.unlink()
    with pytest.raises(NotNativeError, match="No such file"):
        rows(function(PLAIN, READ, OUTPUT), planned)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT CAST(9223372036854775807 AS BIGINT) + id AS c1, price AS c2 FROM scan", "Overflow"),
        ("SELECT id AS c1, CAST(price AS DECIMAL(3,2)) AS c2 FROM scan", "Could not cast|[Cc]onversion"),
    ],
)
def test_an_error_of_duckdb_is_not_native(file: Path, sql: str, message: str) -> None:
    planned = ranges(file, 1)
    if "CAST(price" in sql:
        sql = sql.replace("price AS", "price * 100 AS")
    with pytest.raises(NotNativeError, match=message):
        rows(function(sql, READ, OUTPUT), planned)


DAY, TEXT = Column("day", "date"), Column("s", "string")
WRITERS = {
    "Spark 3 and before, of old dates": ({"org.apache.spark.legacyDateTime": ""}, "", "CORRECTED", DAY, "calendar"),
    "Spark 2": ({"org.apache.spark.version": "2.4.8"}, "", "CORRECTED", DAY, "calendar"),
    "Spark 4": ({"org.apache.spark.version": "4.0.1"}, "", "LEGACY", DAY, None),
    "another writer, with corrected dates": ({}, "", "CORRECTED", DAY, None),
    "another writer, with dates to check": ({}, "", "EXCEPTION", DAY, "calendar"),
    "an old parquet-mr": ({}, "parquet-mr version 1.8.3 (build x)", "CORRECTED", TEXT, "parquet-mr version 1.8.3"),
    "a new parquet-mr": ({}, "parquet-mr version 1.17.0 (build x)", "CORRECTED", TEXT, None),
    "an old parquet-rs": ({}, "parquet-rs version 4.0.0", "CORRECTED", TEXT, "parquet-rs version 4.0.0"),
    "DuckDB": ({}, "DuckDB version v1.5.5", "CORRECTED", TEXT, None),
    "an unknown writer": ({}, "impala version 2.0", "CORRECTED", TEXT, "impala version 2.0"),
}


@pytest.mark.parametrize("case", WRITERS, ids=str)
def test_files_of_incompatible_writers_are_refused(tmp_path: Path, case: str) -> None:
    keys, writer, calendar, column, refused = WRITERS[case]
    path = tmp_path / "t.parquet"
    table = pa.table({"day": pa.array([dt.date(1500, 1, 1)], pa.date32()), "s": ["a"]})
    pq.write_table(table.replace_schema_metadata(keys), path)
    if writer:
        created_by = pq.ParquetFile(path).metadata.created_by.encode()
        # The footer has the writer's name with its length, so the length must not change.
        path.write_bytes(
            path.read_bytes().replace(created_by, writer.encode().ljust(len(created_by))[: len(created_by)])
        )
    output = (Column("c1", column.type),)
    leaf = function(f"SELECT {column.name} AS c1 FROM scan", (column,), output, calendar)
    if refused is None:
        assert len(rows(leaf, ranges(path, 1))) == 1
    else:
        with pytest.raises(NotNativeError, match=refused):
            rows(leaf, ranges(path, 1))


def test_exchanged_columns() -> None:
    """A join of two inputs of a task, each in batches."""
    left, right = (Column("c1", "bigint"), Column("c2", "decimal(15,2)")), (Column("c3", "bigint"),)
    sql = "SELECT c1, c2 FROM (SELECT * FROM input_0) AS l JOIN (SELECT * FROM input_1) AS r ON c1 = c3"
    batches = [
        (0, pa.record_batch({"c1": pa.array([1, 2], pa.int64()), "c2": pa.array([100, None], pa.int64())})),
        (1, pa.record_batch({"c3": pa.array([2, 3], pa.int64())})),
        (0, pa.record_batch({"c1": pa.array([3], pa.int64()), "c2": pa.array([-5], pa.int64())})),
    ]
    message = pa.record_batch(
        {
            "input": pa.array([number for number, _ in batches], pa.int32()),
            "batch": pa.array([batch.serialize().to_pybytes() for _, batch in batches], pa.binary()),
        }
    )
    computed = PartFunction(sql, left, MEMORY, inputs=(left, right))
    joined = [tuple(row.values()) for batch in computed(iter([message])) for row in batch.to_pylist()]
    assert sorted(joined) == [(2, None), (3, -5)]
    assert [batch for batch in computed(iter([])) if batch.num_rows] == []


DAYS = pa.array([-2147483647, 2147483647, 0, 1, -719163, 2932897], pa.int32()).cast(pa.date32())
"""Days outside of Python's dates, including DuckDB's infinite days."""
NUMBERS = pa.array([float("nan"), 1.0, -0.0, 0.0, float("inf"), 2.0])
SENT = (Column("k", "int"), Column("d", "date"), Column("f", "double"))
OF_ARROW = {
    "days of a left join": ("SELECT l.k FROM {b} b LEFT JOIN {l} l ON l.k = b.k AND l.d = b.d", lambda row: [row]),
    "days of a join": ("SELECT l.k FROM {l} l JOIN {b} b ON l.d = b.d", lambda row: [row]),
    "a range of numbers": (
        "SELECT l.k FROM {l} l JOIN {b} b ON l.f >= b.f",
        lambda row: {0: [0], 1: [0, 1, 4, 5], 4: [0, 4], 5: [0, 4, 5]}.get(row, list(range(6))),
    ),
    "a filter of numbers": ("SELECT k FROM {l} l WHERE f > 0.5", lambda row: [0, 1, 4, 5]),
}


@pytest.mark.parametrize("row", range(6))
@pytest.mark.parametrize("name", OF_ARROW)
@pytest.mark.parametrize("sent", ["columns of an exchange", "broadcast tables"])
def test_arrow_applies_no_filter(file: Path, sent: str, name: str, row: int) -> None:
    """Some releases of DuckDB push filters down to Arrow, which treats NaN and infinite days differently."""
    sql, expected = OF_ARROW[name]
    table = pa.table({"k": pa.array(range(6), pa.int32()), "d": DAYS, "f": NUMBERS})
    sides = [batch for side in (table, table.slice(row, 1)) for batch in side.to_batches()]
    columns = (Column("k", "int"),)
    if sent == "broadcast tables":
        streams = {f"build_{number}": BroadcastRows(side) for number, side in enumerate(sides)}
        leaf = PartFunction(
            sql.format(l="build_0", b="build_1"), columns, MEMORY, Files((), "CORRECTED"), tables=streams
        )
        actual = rows(leaf, ranges(file, 1))
    else:
        leaf = PartFunction(sql.format(l="input_0", b="input_1"), columns, MEMORY, inputs=(SENT, SENT))
        messages = [pa.array([0, 1], pa.int32()), pa.array([side.serialize().to_pybytes() for side in sides])]
        batches = leaf(iter([pa.RecordBatch.from_arrays(messages, ["side", "batch"])]))
        actual = [row_dict for batch in batches for row_dict in batch.to_pylist()]
    assert sorted(row_dict["k"] for row_dict in actual) == expected(row)


class BroadcastRows:
    """A broadcast variable with an Arrow stream, as in a worker."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_batch(rows)
        self.value = stream.getvalue().to_pybytes()
