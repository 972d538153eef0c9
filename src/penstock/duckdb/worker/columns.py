"""Columns and their types in DuckDB, Arrow and Spark, and the wire format that carries values between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_ARROW_NAMES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "date": "date32",
    "string": "string",
    "timestamp_ntz": "timestamp[us]",
}
"""Arrow's name of each supported Spark type except decimals."""
_SQL_TYPES = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}
"""DuckDB's names of the types whose names in Spark it lacks, or that it understands differently."""
_MAX_SHORT_DIGITS = 18
"""Spark and DuckDB store decimals of up to this number of digits in 64 bits."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and its type in Spark's SQL syntax."""

    name: str
    type: str

    @property
    def is_short_decimal(self) -> bool:
        """Whether Spark stores the column's decimals in 64 bits."""
        return self.type.startswith("decimal(") and self._precision_and_scale[0] <= _MAX_SHORT_DIGITS

    @property
    def wire_type(self) -> str:
        """The Spark type of the values on the wire: short decimals become unscaled integers, as Spark stores them."""
        return "bigint" if self.is_short_decimal else self.type

    @property
    def _precision_and_scale(self) -> tuple[int, int]:
        precision, scale = self.type[len("decimal(") : -1].split(",")
        return int(precision), int(scale)

    def arrow_type(self) -> Any:
        """Return the column's type in Arrow."""
        import pyarrow as pa

        if self.type.startswith("decimal("):
            return pa.decimal128(*self._precision_and_scale)
        if self.type == "timestamp":
            return pa.timestamp("us", "UTC")
        return pa.type_for_alias(_ARROW_NAMES[self.type])

    @property
    def sql_type(self) -> str:
        """The column's type in DuckDB."""
        return _SQL_TYPES.get(self.type, self.type)

    def to_wire(self, values: Any) -> Any:
        """Convert an Arrow array of the column's type to the wire type."""
        import numpy as np
        import pyarrow as pa

        if not self.is_short_decimal:
            return values
        validity, decimals = values.buffers()
        # The first 8 of 16 bytes hold the whole value of a short decimal.
        halves = np.frombuffer(decimals, dtype=np.int64)
        unscaled = pa.py_buffer(np.ascontiguousarray(halves[: 2 * (values.offset + len(values)) : 2]))
        return pa.Array.from_buffers(pa.int64(), len(values), [validity, unscaled], offset=values.offset)

    def from_wire(self, values: Any) -> Any:
        """Convert an Arrow array of the wire type to the column's type."""
        import numpy as np
        import pyarrow as pa

        if not self.is_short_decimal:
            return values
        validity, integers = values.buffers()
        unscaled = np.frombuffer(integers, dtype=np.int64)[: values.offset + len(values)]
        halves = np.empty((len(unscaled), 2), dtype=np.int64)
        halves[:, 0] = unscaled
        halves[:, 1] = unscaled >> 63  # the upper 64 bits: copies of the sign bit
        buffers = [validity, pa.py_buffer(halves)]
        return pa.Array.from_buffers(self.arrow_type(), len(values), buffers, offset=values.offset)


def wire_schema(columns: Sequence[Column]) -> Any:
    """Return the Arrow schema of columns on the wire."""
    import pyarrow as pa

    return pa.schema([(column.name, Column(column.name, column.wire_type).arrow_type()) for column in columns])


def wire_batch(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """Convert a batch of columns to the wire format."""
    import pyarrow as pa

    values = [column.to_wire(array) for column, array in zip(columns, batch.columns, strict=True)]
    return pa.RecordBatch.from_arrays(values, batch.schema.names)
