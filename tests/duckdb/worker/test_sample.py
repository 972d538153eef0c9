"""The output ratio of a step, sampled from a few row groups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.errors import NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.sample import sample_row_groups
from penstock.duckdb.worker.worker import NativeStep

ID = (Column("id", "bigint"),)
STEP = NativeStep("SELECT id FROM scan WHERE id % 10 = 0", ID, 64 << 20, Files(ID))


@pytest.fixture
def file(tmp_path: Path) -> FileRange:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": pa.array(range(1000), pa.int64())}), path, row_group_size=100)
    status = path.stat()
    return FileRange(str(path), 0, status.st_size, status.st_mtime_ns // 1_000_000, status.st_size)


def test_a_row_group_of_each_range(file: FileRange) -> None:
    sample = sample_row_groups([file, file], [file.length, 3 * file.length])
    assert (sample.rows, sample.task) == (200, 2000)
    assert sample.output_ratio(STEP) == 0.1


def test_no_row_group(file: FileRange) -> None:
    nothing = sample_row_groups([replace(file, length=1)], [1])
    assert (nothing.chosen, nothing.rows, nothing.task) == ((), 0, 0)
    assert nothing.output_ratio(STEP) == 0


def test_a_file_that_is_not_here(file: FileRange) -> None:
    Path(file.path).unlink()
    with pytest.raises(NotNativeError, match="No such file"):
        sample_row_groups([file], [1])
