"""Runs a native step over sampled row groups in the driver, to estimate whether DuckDB pays off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.footers import read_footer
from penstock.duckdb.worker.worker import NativeStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.duckdb.worker.files import FileRange


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the row groups that a step reads.

    `chosen` are the sampled row groups as file ranges, at most one for each task. `task` is the estimated number of
    rows that a task reads in all.
    """

    chosen: tuple[FileRange, ...]
    rows: int
    task: int

    def output_ratio(self, step: NativeStep) -> float:
        """Run a step over the sample; return its output rows divided by its input rows.

        Raises `NotNativeError` if DuckDB cannot read the files.
        """
        count = f"SELECT count(*) AS n FROM ({step.sql})"  # noqa: S608 - the project's own query
        counting = NativeStep(count, (Column("n", "bigint"),), step.memory, step.files, tables=step.tables)
        output_rows = sum(batch.column(0)[0].as_py() for batch in counting.rows(self.chosen))
        return output_rows / self.rows if self.rows else 0.0


def sample_row_groups(ranges: Sequence[FileRange], task_bytes: Sequence[int]) -> Sample:
    """Choose the middle row group of each range.

    Raises `NotNativeError` if the files cannot be read in the driver.

    Parameters
    ----------
    ranges
        The first range of each sampled task.
    task_bytes
        For each of these tasks, the bytes of all of its ranges.
    """
    chosen, rows, of_tasks = [], 0, []
    for file, size in zip(ranges, task_bytes, strict=True):
        groups = read_footer(file.local, file.modified, file.size).groups_in(file)
        if groups:
            group = groups[len(groups) // 2]
            chosen.append(replace(file, start=group.start, length=1))
            rows += group.rows
        of_tasks.append(sum(group.rows for group in groups) * size // max(file.length, 1))
    return Sample(tuple(chosen), rows, sum(of_tasks) // max(len(of_tasks), 1))
