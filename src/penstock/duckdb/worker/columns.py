"""Columns and their types in DuckDB, Arrow and Spark, and the wire format that carries values between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_TYPES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "date": "date32[day]",
    "string": "string",
}
"""Arrow's name of each Spark type."""
_SHORT = 18
"""Spark and DuckDB store decimals of up to this many digits in 64 bits."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and its type in Spark's SQL syntax."""

    name: str
    type: str

    @property
    def arrow(self) -> str:
        """The name of the column's type in Arrow."""
        if self.type.startswith("decimal("):
            return "decimal128" + self.type.removeprefix("decimal").replace(",", ", ")
        return _TYPES[self.type]

    @property
    def is_short_decimal(self) -> bool:
        """Whether Spark stores the column's decimals in 64 bits."""
        return self.type.startswith("decimal(") and self._digits[0] <= _SHORT

    @property
    def wire_type(self) -> str:
        """The type of the values on the wire: short decimals travel as unscaled integers, as Spark stores them."""
        return "bigint" if self.is_short_decimal else self.type

    @property
    def _digits(self) -> tuple[int, int]:
        precision, scale = self.type[len("decimal(") : -1].split(",")
        return int(precision), int(scale)

    def arrow_type(self) -> Any:
        """Return the column's type in Arrow."""
        import pyarrow as pa

        if self.type.startswith("decimal("):
            return pa.decimal128(*self._digits)
        return pa.type_for_alias(self.arrow.removesuffix("[day]"))

    def to_wire(self, values: Any) -> Any:
        """Convert an Arrow array of DuckDB to the wire type."""
        import numpy as np
        import pyarrow as pa

        values = values.cast(self.arrow_type())
        if not self.is_short_decimal:
            return values
        valid, digits = values.buffers()
        # The first 8 of 16 bytes hold the whole value of a short decimal.
        halves = np.frombuffer(digits, dtype=np.int64)
        whole = pa.py_buffer(np.ascontiguousarray(halves[: 2 * (values.offset + len(values)) : 2]))
        return pa.Array.from_buffers(pa.int64(), len(values), [valid, whole], offset=values.offset)

    def from_wire(self, values: Any) -> Any:
        """Convert an Arrow array of the wire type to the column's type."""
        import numpy as np
        import pyarrow as pa

        if not self.is_short_decimal:
            return values
        valid, digits = values.buffers()
        whole = np.frombuffer(digits, dtype=np.int64)[: values.offset + len(values)]
        halves = np.empty((len(whole), 2), dtype=np.int64)
        halves[:, 0] = whole
        halves[:, 1] = whole >> 63  # the sign
        buffers = [valid, pa.py_buffer(halves)]
        return pa.Array.from_buffers(self.arrow_type(), len(values), buffers, offset=values.offset)


def wire_schema(columns: Sequence[Column]) -> Any:
    """Return the Arrow schema of columns on the wire."""
    import pyarrow as pa

    return pa.schema([(column.name, Column(column.name, column.wire_type).arrow_type()) for column in columns])
