"""The output ratio of a part, sampled from a few row groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.sample import sample_row_groups
from penstock.duckdb.worker.worker import PartFunction

ID = (Column("id", "bigint"),)
FUNCTION = PartFunction("SELECT id FROM scan WHERE id % 10 = 0", ID, 64 << 20, Files(ID))


@pytest.fixture
def file(tmp_path: Path) -> FileRange:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array(range(1000), pa.int64())}), path, row_group_size=100)
    status = path.stat()
    return FileRange(str(path), 0, status.st_size, status.st_mtime_ns // 1_000_000, status.st_size)


def test_a_row_group_of_each_range(file: FileRange) -> None:
    sample = sample_row_groups([file, file], [file.length, 3 * file.length])
    assert (sample.rows, sample.task_rows) == (200, 2000)
    assert sample.output_ratio(FUNCTION) == 0.1


def test_no_row_group(file: FileRange) -> None:
    nothing = sample_row_groups([replace(file, length=1)], [1])
    assert (nothing.row_groups, nothing.rows, nothing.task_rows) == ((), 0, 0)
    assert nothing.output_ratio(FUNCTION) == 0


def test_a_file_that_is_not_here(file: FileRange) -> None:
    Path(file.path).unlink()
    with pytest.raises(NotNativeError, match="No such file"):
        sample_row_groups([file], [1])
