"""What a worker computes of ranges of files, and what it refuses."""

from __future__ import annotations

import datetime as dt
import json
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.native.columns import Column
from penstock.native.errors import NotNativeError
from penstock.native.files import FileRange, Files
from penstock.native.worker import NativeStep

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ROWS = 1000
MEMORY = 64 << 20
PLAIN = "SELECT id AS c1, price AS c2 FROM scan"
READ = (Column("id", "bigint"), Column("price", "decimal(15,2)"))
GIVEN = (Column("c1", "bigint"), Column("c2", "decimal(15,2)"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a b'c.parquet"
    table = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "price": pa.array([Decimal(one) / 100 for one in range(ROWS)], pa.decimal128(15, 2)),
            "day": pa.array([dt.date(2026, 11, 1)] * ROWS, pa.date32()),
            "Day": pa.array([1] * ROWS, pa.int32()),
        }
    )
    pq.write_table(table, path, row_group_size=90)
    return path


def ranges(path: Path, tasks: int) -> list[FileRange]:
    found = path.stat()
    length = -(-found.st_size // tasks)
    modified = found.st_mtime_ns // 1_000_000
    return [FileRange(f"file:{path}", i * length, length, modified, found.st_size) for i in range(tasks)]


def step(sql: str, read: tuple[Column, ...], given: tuple[Column, ...], calendar: str = "CORRECTED") -> NativeStep:
    return NativeStep(sql, given, MEMORY, Files(read, calendar))


def rows(leaf: NativeStep, files: Sequence[FileRange]) -> list[dict[str, Any]]:
    return [row for batch in leaf.rows(list(files)) for row in batch.to_pylist()]


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 11, 40])
def test_every_row_is_read_by_one_task(file: Path, tasks: int) -> None:
    leaf = step(PLAIN, READ, GIVEN)
    found = [(row["c1"], row["c2"]) for one in ranges(file, tasks) for row in rows(leaf, [one])]
    assert found == [(one, one) for one in range(ROWS)]  # prices travel as cents


def test_a_task_reads_several_ranges(file: Path) -> None:
    sums = step("SELECT count(*) AS c1 FROM scan", (), (Column("c1", "bigint"),))
    parts = ranges(file, 5)
    assert rows(sums, [parts[0], *parts[3:]]) == [{"c1": ROWS - sum(rows(sums, [one])[0]["c1"] for one in parts[1:3])}]


def test_a_task_without_a_row_group_gives_what_no_rows_give(file: Path) -> None:
    (whole,) = ranges(file, 1)
    nothing = [FileRange(whole.path, 0, 1, whole.modified, whole.size)]
    sums = step("SELECT count(id) AS c1, max(price) AS c2 FROM scan", READ, GIVEN)
    assert rows(step(PLAIN, READ, GIVEN), nothing) == []
    assert rows(sums, nothing) == [{"c1": 0, "c2": None}]


def test_the_function_of_a_stage_is_told_its_files_as_text(file: Path) -> None:
    texts = [json.dumps([{name: getattr(one, name) for name in FileRange.__slots__}]) for one in ranges(file, 2)]
    batches = [pa.record_batch({"files": pa.array([text])}) for text in texts]
    found = [row["c1"] for batch in step(PLAIN, READ, GIVEN)(iter(batches)) for row in batch.to_pylist()]
    assert found == list(range(ROWS))


REFUSED = {
    "another type": ((Column("id", "int"),), "id is int64"),
    "a column that is missing": ((Column("nobody", "int"),), "has no column nobody"),
    "names that differ by their case only": ((Column("day", "date"),), "has a column day that DuckDB renames"),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_files_that_differ_from_the_table_are_refused(file: Path, case: str) -> None:
    read, message = REFUSED[case]
    leaf = step("SELECT 1 AS c1 FROM scan", read, (Column("c1", "int"),))
    with pytest.raises(NotNativeError, match=message):
        rows(leaf, ranges(file, 1))


def test_a_file_that_has_changed_since_is_refused(file: Path) -> None:
    planned = ranges(file, 1)
    os.utime(file, (1, 1))
    with pytest.raises(NotNativeError, match="has changed since the query was planned"):
        rows(step(PLAIN, READ, GIVEN), planned)
    file.unlink()
    with pytest.raises(NotNativeError, match="No such file"):
        rows(step(PLAIN, READ, GIVEN), planned)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT CAST(9223372036854775807 AS BIGINT) + id AS c1, price AS c2 FROM scan", "Overflow"),
        ("SELECT id AS c1, CAST(price AS DECIMAL(3,2)) AS c2 FROM scan", "Could not cast|[Cc]onversion"),
    ],
)
def test_an_error_of_duckdb_leaves_the_rows_to_spark(file: Path, sql: str, message: str) -> None:
    planned = ranges(file, 1)
    if "CAST(price" in sql:
        sql = sql.replace("price AS", "price * 100 AS")
    with pytest.raises(NotNativeError, match=message):
        rows(step(sql, READ, GIVEN), planned)


DAY, TEXT = Column("day", "date"), Column("s", "string")
WRITERS = {
    "Spark 3 and before, of old dates": ({"org.apache.spark.legacyDateTime": ""}, "", "CORRECTED", DAY, "calendar"),
    "Spark 2": ({"org.apache.spark.version": "2.4.8"}, "", "CORRECTED", DAY, "calendar"),
    "Spark 4": ({"org.apache.spark.version": "4.0.1"}, "", "LEGACY", DAY, None),
    "somebody else, with dates as they are": ({}, "", "CORRECTED", DAY, None),
    "somebody else, with dates to check": ({}, "", "EXCEPTION", DAY, "calendar"),
    "an old parquet-mr": ({}, "parquet-mr version 1.8.3 (build x)", "CORRECTED", TEXT, "parquet-mr version 1.8.3"),
    "a new parquet-mr": ({}, "parquet-mr version 1.17.0 (build x)", "CORRECTED", TEXT, None),
    "an old parquet-rs": ({}, "parquet-rs version 4.0.0", "CORRECTED", TEXT, "parquet-rs version 4.0.0"),
    "DuckDB": ({}, "DuckDB version v1.5.5", "CORRECTED", TEXT, None),
    "an unknown writer": ({}, "impala version 2.0", "CORRECTED", TEXT, "impala version 2.0"),
}


@pytest.mark.parametrize("case", WRITERS, ids=str)
def test_files_of_writers_that_meant_something_else_are_refused(tmp_path: Path, case: str) -> None:
    keys, writer, calendar, column, refused = WRITERS[case]
    path = tmp_path / "t.parquet"
    table = pa.table({"day": pa.array([dt.date(1500, 1, 1)], pa.date32()), "s": ["a"]})
    pq.write_table(table.replace_schema_metadata(keys), path)
    if writer:
        there = pq.ParquetFile(path).metadata.created_by.encode()
        # The name of the writer stands in the footer, with its length: of equal length nothing else changes.
        path.write_bytes(path.read_bytes().replace(there, writer.encode().ljust(len(there))[: len(there)]))
    given = (Column("c1", column.type),)
    leaf = step(f"SELECT {column.name} AS c1 FROM scan", (column,), given, calendar)
    if refused is None:
        assert len(rows(leaf, ranges(path, 1))) == 1
    else:
        with pytest.raises(NotNativeError, match=refused):
            rows(leaf, ranges(path, 1))


def test_columns_that_were_exchanged() -> None:
    """Two inputs of a task, in pieces, and a join of them."""
    one, other = (Column("c1", "bigint"), Column("c2", "decimal(15,2)")), (Column("c3", "bigint"),)
    sql = "SELECT c1, c2 FROM (SELECT * FROM input_0) AS l JOIN (SELECT * FROM input_1) AS r ON c1 = c3"
    pieces = [
        (0, pa.record_batch({"c1": pa.array([1, 2], pa.int64()), "c2": pa.array([100, None], pa.int64())})),
        (1, pa.record_batch({"c3": pa.array([2, 3], pa.int64())})),
        (0, pa.record_batch({"c1": pa.array([3], pa.int64()), "c2": pa.array([-5], pa.int64())})),
    ]
    sent = pa.record_batch(
        {
            "input": pa.array([number for number, _ in pieces], pa.int32()),
            "batch": pa.array([piece.serialize().to_pybytes() for _, piece in pieces], pa.binary()),
        }
    )
    computed = NativeStep(sql, one, MEMORY, inputs=(one, other))
    found = [tuple(row.values()) for batch in computed(iter([sent])) for row in batch.to_pylist()]
    assert sorted(found) == [(2, None), (3, -5)]
    assert [batch for batch in computed(iter([])) if batch.num_rows] == []


DAYS = pa.array([-2147483647, 2147483647, 0, 1, -719163, 2932897], pa.int32()).cast(pa.date32())
"""Days that Python's dates lack, and DuckDB's infinite ones among them."""
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
def test_arrow_carries_out_no_filter(file: Path, sent: str, name: str, row: int) -> None:
    """Some releases of DuckDB let it: NaN is then no number, and an infinite day is the first of the year 1."""
    sql, expected = OF_ARROW[name]
    table = pa.table({"k": pa.array(range(6), pa.int32()), "d": DAYS, "f": NUMBERS})
    sides = [batch for side in (table, table.slice(row, 1)) for batch in side.to_batches()]
    columns = (Column("k", "int"),)
    if sent == "broadcast tables":
        streams = {f"build_{number}": BroadcastRows(side) for number, side in enumerate(sides)}
        leaf = NativeStep(sql.format(l="build_0", b="build_1"), columns, MEMORY, Files((), "CORRECTED"), tables=streams)
        found = rows(leaf, ranges(file, 1))
    else:
        leaf = NativeStep(sql.format(l="input_0", b="input_1"), columns, MEMORY, inputs=(SENT, SENT))
        messages = [pa.array([0, 1], pa.int32()), pa.array([side.serialize().to_pybytes() for side in sides])]
        batches = leaf(iter([pa.RecordBatch.from_arrays(messages, ["side", "batch"])]))
        found = [one for batch in batches for one in batch.to_pylist()]
    assert sorted(one["k"] for one in found) == expected(row)


class BroadcastRows:
    """A broadcast variable of a stream of Arrow's, as a worker has it."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_batch(rows)
        self.value = stream.getvalue().to_pybytes()
