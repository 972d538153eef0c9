"""Runs a part of a vertex in a Python worker of Spark: DuckDB reads files or exchanged columns, and computes.

Every error of DuckDB raises `NotNativeError`: Spark then computes the rows.

The modules of this room are sent to the workers as they are, so they import nothing else of the package.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.native.columns import Column, sent_schema
from penstock.native.engine import computed, connected
from penstock.native.files import FileRange, Files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.core.broadcast import Broadcast

    from penstock.native.scatter import Scatter


@dataclass(frozen=True, slots=True)
class NativeStep:
    """What every task computes; a function for ``DataFrame.mapInArrow``.

    Parameters
    ----------
    sql
        The query; ``scan`` is the rows of the files.
    columns
        What it gives.
    memory
        Bytes that DuckDB may use in a task before it spills.
    files
        How it reads files, if it does.
    inputs
        The columns of what else it reads: the query calls it ``input_0``, ``input_1`` and so on.
    tables
        Tables that the query joins, by name: each is a broadcast variable of a stream of Arrow's.
    scatter
        Deals out what it gives, if that leaves as columns.
    rows_read, rows_given
        Count the rows of the files, and those that it gives.
    """

    sql: str
    columns: tuple[Column, ...]
    memory: int
    files: Files | None = None
    inputs: tuple[tuple[Column, ...], ...] = ()
    tables: Mapping[str, Broadcast[bytes]] = field(default_factory=dict)
    scatter: Scatter | None = None
    rows_read: Accumulator[int] | None = None
    rows_given: Accumulator[int] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the rows of a task: of the files that it is told to read, or of the columns that it is sent."""
        rows = self._of_inputs(batches) if self.inputs else self._of_files(batches)
        yield from rows if self.scatter is None else self.scatter.dealt(rows, self.columns)

    def _of_files(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from self.rows([FileRange(**one) for one in json.loads(text)])

    def rows(self, ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
        """Compute the rows of ranges of files."""
        assert self.files is not None
        scans = self.files.scans(ranges)
        if self.rows_read is not None:
            self.rows_read.add(sum(scan.rows for scan in scans))
        paths = {file.local for file in ranges}
        yield from self._computed(" UNION ALL ".join(scan.sql for scan in scans), {}, paths)

    def _of_inputs(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        sent = [sent_schema(columns) for columns in self.inputs]
        wanted = [pa.schema([(one.name, one.arrow_type()) for one in columns]) for columns in self.inputs]
        found: list[list[pa.RecordBatch]] = [[] for _ in self.inputs]
        for batch in batches:
            for number, message in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                rows = pa.ipc.read_record_batch(message.as_buffer(), sent[number])
                values = [one.from_sent(given) for one, given in zip(self.inputs[number], rows.columns, strict=True)]
                found[number].append(pa.RecordBatch.from_arrays(values, schema=wanted[number]))
        tables = {f"input_{n}": pa.Table.from_batches(found[n], wanted[n]) for n in range(len(self.inputs))}
        yield from self._computed(None, tables)

    def _computed(
        self, scan: str | None, inputs: Mapping[str, Any], files: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with connected(self.memory, files=files, reads_arrow=bool(inputs)) as connection:
            for name, sent in self.tables.items():
                # A copy: filters of files are pushed down, and must not reach a table of Arrow; see `connected`.
                connection.register(f"sent_{name}", pa.ipc.open_stream(sent.value).read_all())
                connection.execute(f"CREATE TEMP TABLE {name} AS FROM sent_{name}").fetchall()
                connection.unregister(f"sent_{name}")
            if scan is not None:
                connection.execute(f"CREATE TEMP VIEW scan AS {scan}")
            for name, table in inputs.items():
                connection.register(name, table)
            for batch in computed(connection, self.sql, self.columns):
                if self.rows_given is not None:
                    self.rows_given.add(batch.num_rows)
                yield batch

    def counting(self) -> NativeStep:
        """Return a step that counts the rows of this one."""
        counted = f"SELECT count(*) AS n FROM ({self.sql})"  # noqa: S608 - a query of our own
        columns = (Column("n", "bigint"),)
        return replace(self, sql=counted, columns=columns, scatter=None, rows_read=None, rows_given=None)
