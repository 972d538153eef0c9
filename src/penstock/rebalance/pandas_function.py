"""Functions of the user: as pickled by PySpark, or adapted from pandas DataFrames to Arrow batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from penstock.errors import RebalanceError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql.types import StructType

    PandasMapFunction = Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]


class UserFunction:
    """A pickled function that is loaded in the task, because only executors have its broadcast variables.

    `command` is the pickled pair (function, return type) or, if large, a pickled broadcast variable with these bytes.
    """

    def __init__(self, command: bytes) -> None:
        self._command = command

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Load and call the function."""
        from pyspark import Broadcast, cloudpickle

        command = cloudpickle.loads(self._command)
        if isinstance(command, Broadcast):
            command = cloudpickle.loads(command.value)
        function: Callable[[Iterator[Any]], Iterator[Any]] = command[0]
        return function(batches)


_NESTED_TYPES = {"ArrayType", "MapType", "StructType", "UserDefinedType", "VariantType"}


@dataclass(frozen=True)
class PandasFunction:
    """A function of pandas DataFrames as a function of Arrow batches, with the conversions of ``mapInPandas``.

    `schema` is the Arrow schema of its output. `time_zone` is the session time zone; the function sees local times.
    """

    function: PandasMapFunction
    schema: pa.Schema
    time_zone: str

    @classmethod
    def of(cls, function: PandasMapFunction, inputs: StructType, outputs: StructType, time_zone: str) -> Self:
        """Adapt a function; raise `RebalanceError` if a column of its input or output is of a nested type."""
        from pyspark.sql.pandas.types import to_arrow_schema

        fields = (*inputs.fields, *outputs.fields)
        nested = next((field for field in fields if type(field.dataType).__name__ in _NESTED_TYPES), None)
        if nested is not None:
            raise RebalanceError(
                f"column {nested.name!r} is a {nested.dataType.simpleString()}, for which pandas has several forms",
                hint="use map_in_arrow, or adaptive=False",
            )
        # Spark 4.2 requires a time zone.
        parameters = inspect.signature(to_arrow_schema).parameters
        time_zone_argument: dict[str, Any] = {"timezone": "UTC"} if "timezone" in parameters else {}
        return cls(function, to_arrow_schema(outputs, **time_zone_argument), time_zone)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Call the function with converted batches, and convert its output."""
        return map(self._to_arrow, self.function(map(self._to_pandas, batches)))

    def _to_pandas(self, batch: pa.RecordBatch) -> pd.DataFrame:
        frame = batch.to_pandas(date_as_object=True)
        for name, column in frame.items():
            if getattr(column.dtype, "tz", None) is not None:
                frame[name] = column.dt.tz_convert(self.time_zone).dt.tz_localize(None)
        return frame

    def _to_arrow(self, frame: pd.DataFrame) -> pa.RecordBatch:
        import pyarrow as pa

        if len(frame.columns) and all(isinstance(name, str) for name in frame.columns):
            missing = [name for name in self.schema.names if name not in frame.columns]
            if missing:
                message = f"the function returned no column {missing[0]!r}"
                raise RebalanceError(message, hint="return all columns of the schema")
            columns = [frame[name] for name in self.schema.names]
        else:  # without names, columns are matched by position
            columns = [frame.iloc[:, i] for i in range(len(frame.columns))]
        arrays = [self._array(column, field) for column, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, column: pd.Series, field: pa.Field) -> pa.Array:
        import pyarrow as pa

        has_time_zone = pa.types.is_timestamp(field.type) and field.type.tz is not None
        if has_time_zone and getattr(column.dtype, "tz", None) is None:
            column = column.astype("datetime64[us]").dt.tz_localize(self.time_zone, ambiguous=False)
        return pa.Array.from_pandas(column, type=field.type, safe=True)
