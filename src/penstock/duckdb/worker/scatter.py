"""Scatters columnar batches over subpartitions by Spark's own hash of their keys.

A subpartition is a partition of an exchange. A batch of its rows becomes a single row of the exchange: the serialized
batch, and a routing number that Spark hashes to this subpartition. The batch has the rows that Spark would hash to it
(by ``org.apache.spark.unsafe.hash.Murmur3_x86_32``), so they can be joined with rows that Spark has exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.duckdb.worker.columns import Column

SEED = 42
"""The seed of Spark's exchanges."""
_MAX_BUFFERED_BYTES = 64 << 20
"""Bytes after which rows are scattered: more bytes give longer batches, but need more memory in the worker."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Scatters rows over subpartitions by the columns at positions `keys`; each subpartition has a routing number."""

    keys: tuple[int, ...]
    routing_numbers: tuple[int, ...]

    def scatter(self, batches: Iterator[Any], columns: Sequence[Column]) -> Iterator[Any]:
        """Yield batches of two columns: a routing number, and the rows of its subpartition as an Arrow IPC message."""
        buffered: list[Any] = []
        size = 0
        for batch in batches:
            buffered.append(batch)
            size += batch.nbytes
            if size > _MAX_BUFFERED_BYTES:
                yield self._scatter_rows(buffered, columns)
                buffered, size = [], 0
        if any(batch.num_rows for batch in buffered):
            yield self._scatter_rows(buffered, columns)

    def _scatter_rows(self, batches: list[Any], columns: Sequence[Column]) -> Any:
        import numpy as np
        import pyarrow as pa

        (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        subpartitions = self.subpartitions(rows, columns)
        rows = rows.take(pa.array(np.argsort(subpartitions, kind="stable")))
        counts = np.bincount(subpartitions, minlength=len(self.routing_numbers))
        starts = np.cumsum(counts) - counts
        nonempty = np.flatnonzero(counts)
        parts = [rows.slice(int(starts[number]), int(counts[number])).serialize() for number in nonempty]
        numbers = np.array(self.routing_numbers, dtype=np.int32)[nonempty]
        messages = [part.to_pybytes() for part in parts]
        output = [pa.array(numbers), pa.array(messages, pa.binary())]
        return pa.RecordBatch.from_arrays(output, ["routing_number", "batch"])

    def subpartitions(self, rows: Any, columns: Sequence[Column]) -> Any:
        """Return the subpartition of each row, shape (rows,)."""
        import numpy as np

        hashed = np.full(rows.num_rows, SEED, dtype=np.uint32)
        for key in self.keys:
            hashed = _hash_column(rows.column(key), columns[key].wire_type, hashed)
        count = len(self.routing_numbers)
        return _modulo(hashed, count).astype(np.uint16 if count <= 1 << 16 else np.int32)  # 16-bit numbers sort fastest


def routing_numbers(subpartitions: int) -> tuple[int, ...]:
    """Return for each subpartition a number that Spark hashes to it."""
    import numpy as np

    numbers: dict[int, int] = {}
    start = 0
    while len(numbers) < subpartitions:
        candidates = np.arange(start, start + 8 * subpartitions, dtype=np.int32)
        hashed = _finish(_mix(np.full(len(candidates), SEED, dtype=np.uint32), candidates.view(np.uint32)), 4)
        for number, subpartition in zip(candidates.tolist(), _modulo(hashed, subpartitions).tolist(), strict=True):
            numbers.setdefault(subpartition, number)
        start += len(candidates)
    return tuple(numbers[subpartition] for subpartition in range(subpartitions))


def _hash_column(values: Any, type_name: str, seeds: Any) -> Any:
    """Return the hashes of a column, seeded by those of the previous columns; the hash of a null is its seed."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    valid = None if values.null_count == 0 else np.asarray(pc.is_valid(values))
    if type_name == "date":
        values = values.cast(pa.int32())
    if type_name.startswith("timestamp"):
        values = values.cast(pa.int64())
    if valid is not None:
        values = pc.fill_null(values, pa.scalar(0, values.type) if type_name != "boolean" else False)
    if type_name in {"float", "double"}:
        numbers = np.asarray(values) + 0.0  # negative zero becomes zero
        values = np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers)  # a single NaN
        values = values.view(np.int64 if type_name == "double" else np.int32)
    if type_name in {"bigint", "double"} or type_name.startswith("timestamp"):
        words = np.asarray(values).view(np.uint64)
        low, high = (words & np.uint64(0xFFFFFFFF)).astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
        hashed = _finish(_mix(_mix(seeds, low), high), 8)
    else:
        hashed = _finish(_mix(seeds, np.asarray(values).astype(np.int32).view(np.uint32)), 4)
    return hashed if valid is None else np.where(valid, hashed, seeds)


def _modulo(hashed: Any, subpartitions: int) -> Any:
    import numpy as np

    return hashed.view(np.int32).astype(np.int64) % subpartitions


def _rotate(values: Any, bits: int) -> Any:
    return (values << bits) | (values >> (32 - bits))


def _mix(hashed: Any, words: Any) -> Any:
    import numpy as np

    words = _rotate(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotate(hashed ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finish(hashed: Any, length: int) -> Any:
    import numpy as np

    hashed = hashed ^ np.uint32(length)
    hashed = (hashed ^ (hashed >> 16)) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> 13)) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> 16)
