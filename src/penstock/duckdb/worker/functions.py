"""Calls the user's Python functions on the batches of a query, in the worker that computes the query.

PySpark's own code prepares the functions, converts their arguments and checks their results, so that values and errors
are those of Spark. The batches do not pass the JVM.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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

    commands: tuple[bytes, ...] = field(repr=False)
    positions: tuple[int, ...]
    positions_by_name: Mapping[str, int]
    result_id: int


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """An operator that calls functions on the rows of the query `sql`; later queries read its rows by `name`.

    The query returns `columns` followed by `arguments`, which the functions see as `argument_names`; `argument_types`
    is the JSON of their Spark types. The functions return `results`: a value per row, or other rows if `maps_rows`.
    `settings` are those that Spark sends to its workers. A batch has at most `max_batch_rows` rows, and about at most
    `max_batch_bytes` bytes of arguments.
    """

    name: str
    sql: str
    columns: tuple[Column, ...]
    arguments: tuple[Column, ...]
    results: tuple[Column, ...]
    argument_names: tuple[str, ...]
    argument_nullable: tuple[bool, ...]
    argument_types: str
    eval_type: int
    functions: tuple[UserFunction, ...]
    settings: Mapping[str, str]
    maps_rows: bool
    max_batch_rows: int
    max_batch_bytes: int

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows of the call."""
        import pyarrow as pa

        return pa.schema([(column.name, column.arrow_type()) for column in (*self.columns, *self.results)])

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the query beside the results; functions may divide the rows differently into batches.

        Raises `FunctionError` if a function fails, or returns other types than it declares.
        """
        import pyarrow as pa

        waiting: deque[pa.RecordBatch] = deque()
        schema, expected = self.schema, [column.arrow_type() for column in self.results]
        for result in self._call(self._argument_batches(batches, waiting)):
            arrays = result.column(0).flatten() if self.maps_rows else result.columns
            types = [array.type for array in arrays]
            if len(types) != len(expected) or not all(map(_is_accepted, types, expected)):
                raise FunctionError(f"returned {types} instead of {expected}")
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

        zone = self.settings["spark.sql.session.timeZone"]
        types = [
            pa.timestamp("us", zone) if column.type == "timestamp" else column.arrow_type() for column in self.arguments
        ]
        fields = list(map(pa.field, self.argument_names, types, self.argument_nullable))
        for batch in (part for whole in batches for part in self._small_batches(whole)):
            if self.columns:
                waiting.append(batch.select(range(len(self.columns))))
            arrays = [array.cast(t) for array, t in zip(batch.columns[len(self.columns) :], types, strict=True)]
            if self.maps_rows:
                yield pa.RecordBatch.from_arrays([pa.StructArray.from_arrays(arrays, fields=fields)], ["_0"])
            else:
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _small_batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Divide a batch whose arguments exceed the limit of bytes."""
        size = sum(column.nbytes for column in batch.columns[len(self.columns) :])
        rows = batch.num_rows
        if size > self.max_batch_bytes > 0:
            rows = max(rows * self.max_batch_bytes // size, 1)
        for start in range(0, batch.num_rows, rows or 1):
            yield batch.slice(start, rows)

    def _call(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext
        from pyspark.serializers import CPickleSerializer
        from pyspark.worker import EvalConf, RunnerConf, read_udfs
        from pyspark.worker_message import UDFInfo

        context = TaskContext.get()
        split = 0 if context is None else context.partitionId()
        settings, types = RunnerConf(dict(self.settings)), EvalConf({"input_type": self.argument_types})
        try:
            functions = [
                UDFInfo(
                    udfs=[memoryview(command) for command in function.commands],
                    args=list(function.positions),
                    kwargs=dict(function.positions_by_name),
                    result_id=function.result_id,
                )
                for function in self.functions
            ]
            evaluate, *_ = read_udfs(  # type: ignore[no-untyped-call]
                CPickleSerializer(), functions, self.eval_type, settings, types
            )
            yield from evaluate(split, batches)
        except (GeneratorExit, NotNativeError):
            raise
        except BaseException as error:  # Spark calls the functions again, and raises their error
            raise FunctionError(f"raised {type(error).__name__}") from error


class FunctionError(Exception):
    """A function of the user has failed; the message contains no values and no code of the user."""


def _is_accepted(actual: Any, expected: Any) -> bool:
    """Whether Spark accepts a type that a function returned; the zone of times only labels them."""
    import pyarrow as pa

    if pa.types.is_timestamp(actual) and pa.types.is_timestamp(expected):
        return bool(actual.unit == expected.unit and (actual.tz is None) == (expected.tz is None))
    return bool(actual == expected) or (pa.types.is_large_string(actual) and pa.types.is_string(expected))
