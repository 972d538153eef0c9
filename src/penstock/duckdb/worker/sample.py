"""Runs the function of a part over sampled row groups in the driver, to estimate whether DuckDB pays off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.footers import read_footer
from penstock.duckdb.worker.worker import PartFunction

if TYPE_CHECKING:
    from penstock.duckdb.worker.files import FileRange


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the row groups that a part reads.

    `row_groups` are the sampled row groups as file ranges, at most 1 per sampled task, and `rows` their total number
    of rows. `task_rows` is the estimated number of rows that a task reads.
    """

    row_groups: tuple[FileRange, ...]
    rows: int
    task_rows: int

    def output_ratio(self, function: PartFunction) -> float:
        """Run the function of a part over the sample; return its output rows divided by its input rows.

        Raises `NotNativeError` if DuckDB cannot read the files.
        """
        count = f"SELECT count(*) AS n FROM ({function.sql})"  # noqa: S608 - the project's own query
        columns = (Column("n", "bigint"),)
        counting = PartFunction(count, columns, function.memory, function.files, tables=function.tables)
        output_rows = sum(batch.column(0)[0].as_py() for batch in counting.rows(self.row_groups))
        return output_rows / self.rows if self.rows else 0.0


def sample_row_groups(ranges: Sequence[FileRange], task_bytes: Sequence[int]) -> Sample:
    """Choose the middle of the row groups in each range; raises `NotNativeError` if the driver cannot read the files.

    `ranges` has the first file range of each sampled task, and `task_bytes` the bytes of all ranges of each such task.
    """
    row_groups, rows, task_rows = [], 0, []
    for file, total_bytes in zip(ranges, task_bytes, strict=True):
        groups = read_footer(file.local_path, file.modified_ms, file.size).row_groups_in(file)
        if groups:
            group = groups[len(groups) // 2]
            row_groups.append(replace(file, start=group.start_byte, length=1))  # only this group starts in it
            rows += group.rows
        task_rows.append(sum(group.rows for group in groups) * total_bytes // max(file.length, 1))
    return Sample(tuple(row_groups), rows, sum(task_rows) // max(len(task_rows), 1))
