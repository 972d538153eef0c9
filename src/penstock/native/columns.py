"""Columns as DuckDB, Arrow and Spark have them, and how they travel between the three."""

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
"""Spark's types, and Arrow's names for them."""
_SHORT = 18
"""Decimals of up to so many digits are 64 bits in Spark, and in DuckDB."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, and its type as Spark's SQL spells it."""

    name: str
    type: str

    @property
    def arrow(self) -> str:
        """The name of its type in Arrow."""
        if self.type.startswith("decimal("):
            return "decimal128" + self.type.removeprefix("decimal").replace(",", ", ")
        return _TYPES[self.type]

    @property
    def is_short_decimal(self) -> bool:
        """Whether it has decimals that are 64 bits in Spark."""
        return self.type.startswith("decimal(") and self._digits[0] <= _SHORT

    @property
    def sent(self) -> str:
        """The type in which its values travel: short decimals are whole numbers, as Spark has them."""
        return "bigint" if self.is_short_decimal else self.type

    @property
    def _digits(self) -> tuple[int, int]:
        precision, scale = self.type[len("decimal(") : -1].split(",")
        return int(precision), int(scale)

    def arrow_type(self) -> Any:
        """Return its type in Arrow."""
        import pyarrow as pa

        if self.type.startswith("decimal("):
            return pa.decimal128(*self._digits)
        return pa.type_for_alias(self.arrow.removesuffix("[day]"))

    def to_sent(self, values: Any) -> Any:
        """Return values of DuckDB as they travel."""
        import numpy as np
        import pyarrow as pa

        values = values.cast(self.arrow_type())
        if not self.is_short_decimal:
            return values
        valid, digits = values.buffers()
        halves = np.frombuffer(digits, dtype=np.int64)  # of 16 bytes each, the first eight tell all of a short one
        whole = pa.py_buffer(np.ascontiguousarray(halves[: 2 * (values.offset + len(values)) : 2]))
        return pa.Array.from_buffers(pa.int64(), len(values), [valid, whole], offset=values.offset)

    def from_sent(self, values: Any) -> Any:
        """Return values that have travelled as DuckDB wants them."""
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


def sent_schema(columns: Sequence[Column]) -> Any:
    """Return the schema of columns that travel."""
    import pyarrow as pa

    return pa.schema([(one.name, Column(one.name, one.sent).arrow_type()) for one in columns])
