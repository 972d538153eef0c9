"""Runs a part of a physical plan in a Python worker of Spark: DuckDB computes rows from files or exchanged columns.

Every DuckDB error becomes a `NotNativeError`; Spark then computes the rows.

The modules of this package are shipped to the workers, so they import no module of other packages of Penstock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker import products
from penstock.duckdb.worker.columns import wire_batch, wire_schema
from penstock.duckdb.worker.engine import BATCH_ROWS, NotNativeError, open_connection, query_batches
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.functions import FunctionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.core.broadcast import Broadcast

    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.functions import FunctionCall
    from penstock.duckdb.worker.scatter import Scatter


@dataclass(frozen=True, slots=True)
class PartFunction:
    """The computation of a part in each task; a function for ``DataFrame.mapInArrow``.

    The query `sql` returns `columns`. It reads the rows of the files as ``scan``, or the exchanged inputs as
    ``input_0``, ``input_1`` and so on, whose columns are in `inputs`. `files` is None if there are inputs. `tables` are
    broadcast tables that the query joins, by name: each is an Arrow IPC stream. `scatter` is None if the output is
    not exchanged as columns. `calls` are the calls of Python functions, in their order: the first reads the files or
    inputs, each other the rows of the one before, and the query `sql` those of the last. `memory` is the number of
    bytes that DuckDB may use in a task before it spills. The accumulators count the rows read from files and the rows
    returned.
    """

    sql: str
    columns: tuple[Column, ...]
    memory: int
    files: Files | None = None
    inputs: tuple[tuple[Column, ...], ...] = ()
    tables: Mapping[str, Broadcast[bytes]] = field(default_factory=dict)
    scatter: Scatter | None = None
    calls: tuple[FunctionCall, ...] = ()
    rows_read: Accumulator[int] | None = None
    rows_returned: Accumulator[int] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Compute the rows of a task from batches that contain file ranges or exchanged columns."""
        rows = self._input_rows(batches) if self.inputs else self._file_rows(batches)
        yield from rows if self.scatter is None else self.scatter.scatter(rows, self.columns)

    def _file_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0).to_pylist():
                yield from self.rows([FileRange(**fields) for fields in json.loads(text)])

    def rows(self, ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
        """Compute the rows of file ranges."""
        assert self.files is not None
        scan, count = self.files.query(ranges)
        if self.rows_read is not None:
            self.rows_read.add(count)
        yield from self._query_rows(scan, {}, {file.local_path for file in ranges})

    def _input_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        wire_schemas = [wire_schema(columns) for columns in self.inputs]
        schemas = [pa.schema([(column.name, column.arrow_type()) for column in columns]) for columns in self.inputs]
        received: list[list[pa.RecordBatch]] = [[] for _ in self.inputs]
        for batch in batches:
            for number, message in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
                rows = pa.ipc.read_record_batch(message.as_buffer(), wire_schemas[number])
                columns = zip(self.inputs[number], rows.columns, strict=True)
                values = [column.from_wire(array) for column, array in columns]
                received[number].append(pa.RecordBatch.from_arrays(values, schema=schemas[number]))
        tables = {f"input_{n}": pa.Table.from_batches(received[n], schemas[n]) for n in range(len(self.inputs))}
        yield from self._query_rows(None, tables)

    def _query_rows(
        self, scan: str | None, inputs: Mapping[str, Any], files: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the query; the user's functions run in this thread, while the rows are read."""
        import pyarrow as pa

        errors: list[FunctionError] = []
        called = _recording(iter(()), errors)
        try:
            for call in self.calls:
                columns, rows_per_batch = (*call.columns, *call.arguments), call.max_batch_rows
                rows = self._batches(call.sql, columns, scan, inputs, files, rows_per_batch)
                called = _recording(call.rows(rows), errors)
                # DuckDB would read a reader itself in other threads, and far ahead.
                stream = pa.RecordBatchReader.from_batches(call.schema, called).__arrow_c_stream__()
                scan, files, inputs = None, (), {**inputs, call.name: stream}
            for batch in self._batches(self.sql, self.columns, scan, inputs, files):
                if self.rows_returned is not None:
                    self.rows_returned.add(batch.num_rows)
                yield wire_batch(batch, self.columns)
            for _ in called:  # Spark calls the functions for all rows, even if a join needs none of them
                pass
        except (NotNativeError, FunctionError):
            if errors:
                raise NotNativeError(f"a Python function {errors[0]}") from None
            raise
        finally:
            called.close()

    def _batches(
        self,
        sql: str,
        columns: Sequence[Column],
        scan: str | None,
        inputs: Mapping[str, Any],
        files: Collection[str],
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement; of a part with functions, whose inputs are read once, with long products."""
        compute = partial(self._statement_batches, sql, columns, scan, inputs, files, batch_rows)
        return compute(products.Length.LONG) if self.calls else products.compute_short_first([sql], compute)

    def _statement_batches(
        self,
        sql: str,
        columns: Sequence[Column],
        scan: str | None,
        inputs: Mapping[str, Any],
        files: Collection[str],
        batch_rows: int,
        length: products.Length,
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        memory = self.memory // (1 + len(self.calls))
        with open_connection(memory, files=files, reads_arrow=bool(inputs)) as connection:
            for name, broadcast in self.tables.items():
                if re.search(rf"\b{name}\b", sql) is None:
                    continue
                # Copied into DuckDB, as pushed-down filters must not reach an Arrow table; see `open_connection`.
                connection.register(f"sent_{name}", pa.ipc.open_stream(broadcast.value).read_all())
                connection.execute(f"CREATE TEMP TABLE {name} AS FROM sent_{name}").fetchall()
                connection.unregister(f"sent_{name}")
            products.define_macros(connection, [sql], length)
            if scan is not None:
                connection.execute(f"CREATE TEMP VIEW scan AS {scan}")
            for name, table in inputs.items():
                connection.register(name, table)
            yield from query_batches(connection, sql, columns, batch_rows)


def _recording(batches: Iterator[pa.RecordBatch], errors: list[FunctionError]) -> Generator[pa.RecordBatch, None, None]:
    """Yield batches, and record the error of a function: DuckDB would report it as a text with the user's values."""
    try:
        yield from batches
    except FunctionError as error:
        errors.append(error)
        raise FunctionError(str(error)) from None
