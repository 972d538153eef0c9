"""Footers of Parquet files, which are read once per file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.files import FileRange
from penstock.duckdb.worker.footers import Footer, RowGroup, read_footer


def test_a_footer(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array(range(25), pa.int64())}), path, row_group_size=10)
    footer = read_footer(str(path), 1, 2)
    assert [(column.name, column.type, column.annotation) for column in footer.columns] == [("id", "int64", "NONE")]
    assert footer.columns[0].formats >= {"SNAPPY", "PLAIN"}
    assert [(group.first_row, group.rows) for group in footer.row_groups] == [(0, 10), (10, 10), (20, 5)]
    assert footer.rows == 25
    path.unlink()
    assert read_footer(str(path), 1, 2) is footer  # the cached footer
    with pytest.raises(NotNativeError):
        read_footer(str(path), 2, 2)


@pytest.mark.parametrize(
    ("start", "length", "rows"), [(0, 100, (0, 30)), (0, 11, (0, 20)), (11, 9, (0, 0)), (20, 99, (20, 30))]
)
def test_rows_of_a_range(start: int, length: int, rows: tuple[int, int]) -> None:
    footer = Footer((), "", None, False, tuple(RowGroup(n * 10, 10, n * 10) for n in range(3)))
    assert footer.row_range(FileRange("t", start, length, 0, 0)) == rows
