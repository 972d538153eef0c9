"""Calls the user's Python functions on the batches of a query, in the worker that computes the query.

PySpark's own code prepares the functions, converts their arguments and checks their results, so that values and errors
are those of Spark. The batches do not pass the JVM.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.duckdb.worker.engine import NotNativeError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.duckdb.worker.columns import Column

PYSPARK = (4, 3)
"""The release of PySpark whose worker has the interface that is used here."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function as PySpark serializes it: `commands` are called in this order, each with the result of the last.

    `positions` and `positions_by_name` are the positions of the arguments in a batch.
    """

    commands: tuple[bytes, ...]
    positions: tuple[int, ...]
    positions_by_name: Mapping[str, int]
    result_id: int


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """An operator that calls functions on the rows of the query `sql`; later queries read its rows by `name`.

    The query returns `columns` followed by `arguments`, which the functions see as `argument_names`; `argument_types`
    is the JSON of their Spark types. The functions return `results`: a value per row, or other rows if `maps_rows`.
    `settings` are those that Spark sends to its workers.
    """

    name: str
    sql: str
    columns: tuple[Column, ...]
    arguments: tuple[Column, ...]
    results: tuple[Column, ...]
    argument_names: tuple[str, ...]
    argument_types: str
    eval_type: int
    functions: tuple[UserFunction, ...]
    settings: Mapping[str, str]
    maps_rows: bool

    def reader(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
        """Return the rows of the call, computed while they are read, for the rows of the query."""
        import pyarrow as pa

        schema = pa.schema([(column.name, column.arrow_type()) for column in (*self.columns, *self.results)])
        return pa.RecordBatchReader.from_batches(schema, self._rows(batches, schema))

    def _rows(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the query beside the results; functions may divide the rows differently into batches."""
        import pyarrow as pa

        waiting: deque[pa.RecordBatch] = deque()
        for result in self._call(self._argument_batches(batches, waiting)):
            arrays = result.column(0).flatten() if self.maps_rows else result.columns
            types, expected = [array.type for array in arrays], [column.arrow_type() for column in self.results]
            if len(types) != len(expected) or not all(map(_is_equal, types, expected)):
                raise NotNativeError(f"a Python function returned {types} instead of {expected}")
            results = [array.cast(arrow_type) for array, arrow_type in zip(arrays, expected, strict=True)]
            start = 0
            while start < len(results[0]):
                beside: list[pa.Array] = []
                count = len(results[0]) - start
                if self.columns:
                    batch = waiting.popleft()
                    count = min(count, batch.num_rows)
                    beside = batch.slice(0, count).columns
                    if count < batch.num_rows:
                        waiting.appendleft(batch.slice(count))
                arrays = [*beside, *(array.slice(start, count) for array in results)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
                start += count

    def _argument_batches(
        self, batches: Iterator[pa.RecordBatch], waiting: deque[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the arguments of batches as Spark sends them; append their other columns to `waiting`."""
        import pyarrow as pa

        zone = self.settings.get("spark.sql.session.timeZone", "UTC")
        for batch in batches:
            arrays = [
                array.cast(pa.timestamp("us", zone)) if column.type == "timestamp" else array
                for column, array in zip(self.arguments, batch.columns[len(self.columns) :], strict=True)
            ]
            if self.columns and batch.num_rows:
                waiting.append(batch.select(range(len(self.columns))))
            if self.maps_rows:
                rows = pa.StructArray.from_arrays(arrays, self.argument_names)
                yield pa.RecordBatch.from_arrays([rows], ["_0"])
            else:
                yield pa.RecordBatch.from_arrays(arrays, list(self.argument_names))

    def _call(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext
        from pyspark.serializers import CPickleSerializer
        from pyspark.worker import EvalConf, RunnerConf, read_udfs
        from pyspark.worker_message import UDFInfo

        functions = [
            UDFInfo(
                udfs=[memoryview(command) for command in function.commands],
                args=list(function.positions),
                kwargs=dict(function.positions_by_name),
                result_id=function.result_id,
            )
            for function in self.functions
        ]
        settings, types = RunnerConf(dict(self.settings)), EvalConf({"input_type": self.argument_types})
        evaluate, *_ = read_udfs(  # type: ignore[no-untyped-call]
            CPickleSerializer(), functions, self.eval_type, settings, types
        )
        context = TaskContext.get()
        yield from evaluate(0 if context is None else context.partitionId(), batches)


def _is_equal(actual: Any, expected: Any) -> bool:
    """Whether a function has returned the expected type; times may have any zone, which only labels them."""
    import pyarrow as pa

    if pa.types.is_timestamp(actual) and pa.types.is_timestamp(expected):
        return bool(actual.unit == expected.unit and (actual.tz is None) == (expected.tz is None))
    return bool(actual == expected)
