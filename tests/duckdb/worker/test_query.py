"""Whole queries in a worker: several tables, and intermediate results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.query import NamedResult, QueryFunction, Table

ID = (Column("id", "bigint"),)
SINGLE_ROW = pa.RecordBatch.from_pydict({"id": [0]})
MEMORY = 64 << 20


def table(folder: Path, name: str, files: int, rows: int = 10) -> Table:
    ranges = []
    for number in range(files):
        path = folder / f"{name}-{number}.parquet"
        pq.write_table(pa.table({"id": pa.array(range(number * rows, (number + 1) * rows), pa.int64())}), path)
        status = path.stat()
        half = status.st_size // 2
        for start, length in ((0, half), (half, status.st_size - half)):  # in ranges, like Spark's splits
            ranges.append(FileRange(f"file:{path}", start, length, status.st_mtime_ns // 1_000_000, status.st_size))
    return Table(name, Files(ID), tuple(ranges))


def rows(sql: str, tables: tuple[Table, ...], *results: NamedResult) -> list[dict[str, Any]]:
    function = QueryFunction(sql, results, (Column("n", "bigint"),), tables, MEMORY, 2)
    return [row for batch in function(iter([SINGLE_ROW])) for row in batch.to_pylist()]


def test_several_tables(tmp_path: Path) -> None:
    tables = table(tmp_path, "t", 3), table(tmp_path, "u", 1), table(tmp_path, "nothing", 0)
    assert rows("SELECT count(*) AS n FROM scan_0 a JOIN scan_1 b ON a.id = b.id", tables) == [{"n": 10}]
    assert rows("SELECT count(*) AS n FROM scan_2", tables) == [{"n": 0}]
    assert tables[0].size_in_bytes == sum(path.stat().st_size for path in tmp_path.glob("t-*"))


def test_results_that_later_queries_read(tmp_path: Path) -> None:
    first = NamedResult("result_0", "SELECT max(id) AS c FROM scan_0", is_scalar=True)
    second = NamedResult("result_1", "SELECT id FROM scan_0 WHERE id > (SELECT * FROM result_0) - 3", is_scalar=False)
    assert rows("SELECT count(*) AS n FROM result_1", (table(tmp_path, "t", 2),), first, second) == [{"n": 3}]


def test_a_subquery_of_several_rows(tmp_path: Path) -> None:
    """It fails as in Spark, even if no row uses its value."""
    value = NamedResult("result_0", "SELECT id FROM scan_0", is_scalar=True)
    with pytest.raises(NotNativeError, match="more than one row"):
        rows("SELECT id AS n FROM scan_0 WHERE id = -1", (table(tmp_path, "t", 1),), value)


def test_a_file_that_was_replaced(tmp_path: Path) -> None:
    replaced = table(tmp_path, "t", 1)
    replaced.rows_query()
    pq.write_table(pa.table({"id": pa.array(range(3), pa.int64())}), tmp_path / "t-0.parquet")
    with pytest.raises(NotNativeError, match="has changed"):
        replaced.rows_query()
