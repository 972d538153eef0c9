"""Columns on their way through Spark's exchange: rows are dealt out by Spark's own hash of their keys.

Each subpartition gets one row, of a number and a batch of columns. Spark hashes the number, and the numbers are chosen
such that a batch lands where its rows would: so what one step writes as columns can meet what another writes as rows.
The hash is that of ``org.apache.spark.unsafe.hash.Murmur3_x86_32``, of whole columns at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.native.columns import Column

SEED = 42
"""The seed of Spark's exchanges."""
_SHORT = 1 << 16
_MOST_BYTES = 64 << 20
"""So many bytes of a task are dealt out at a time: batches are long, and the memory of the worker is bounded."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """Deals out rows.

    Parameters
    ----------
    keys
        The places of the columns that are hashed.
    numbers
        For each subpartition a number whose hash belongs there.
    """

    keys: tuple[int, ...]
    numbers: tuple[int, ...]

    def dealt(self, batches: Iterator[Any], columns: Sequence[Column]) -> Iterator[Any]:
        """Return batches of two columns: the number of a subpartition, and its rows as a message of Arrow's."""
        held: list[Any] = []
        size = 0
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size > _MOST_BYTES:
                yield self._dealt(held, columns)
                held, size = [], 0
        if any(batch.num_rows for batch in held):
            yield self._dealt(held, columns)

    def _dealt(self, batches: list[Any], columns: Sequence[Column]) -> Any:
        import numpy as np
        import pyarrow as pa

        (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        subpartitions = self.subpartitions(rows, columns)
        rows = rows.take(pa.array(np.argsort(subpartitions, kind="stable")))
        counts = np.bincount(subpartitions, minlength=len(self.numbers))
        ends = np.cumsum(counts)
        filled = np.flatnonzero(counts)
        parts = [rows.slice(int(ends[place] - counts[place]), int(counts[place])).serialize() for place in filled]
        numbers = np.array(self.numbers, dtype=np.int32)[filled]
        sent = [pa.array(numbers), pa.array([part.to_pybytes() for part in parts], pa.binary())]
        return pa.RecordBatch.from_arrays(sent, ["place", "batch"])

    def subpartitions(self, rows: Any, columns: Sequence[Column]) -> Any:
        """Return the subpartition of each row, shape (rows,)."""
        import numpy as np

        hashed = np.full(rows.num_rows, SEED, dtype=np.uint32)
        for place in self.keys:
            hashed = _hashed(rows.column(place), columns[place].sent, hashed)
        narrow = np.uint16 if len(self.numbers) <= _SHORT else np.int32  # of short numbers, sorting is quickest
        return _places(hashed, len(self.numbers)).astype(narrow)


def numbers_of(subpartitions: int) -> tuple[int, ...]:
    """Return for each subpartition a number that Spark puts there."""
    import numpy as np

    found: dict[int, int] = {}
    start = 0
    while len(found) < subpartitions:
        some = np.arange(start, start + 8 * subpartitions, dtype=np.int32)
        hashed = _finished(_mixed(np.full(len(some), SEED, dtype=np.uint32), some.view(np.uint32)), 4)
        for number, place in zip(some.tolist(), _places(hashed, subpartitions).tolist(), strict=True):
            found.setdefault(place, number)
        start += len(some)
    return tuple(found[place] for place in range(subpartitions))


def _hashed(values: Any, type_name: str, seeds: Any) -> Any:
    """Return the hashes of a column, each with the hash of the columns before it as its seed; null leaves that."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    valid = None if values.null_count == 0 else np.asarray(pc.is_valid(values))
    if type_name == "date":
        values = values.cast(pa.int32())
    if valid is not None:
        values = pc.fill_null(values, pa.scalar(0, values.type) if type_name != "boolean" else False)
    if type_name == "bigint":
        whole = np.asarray(values).view(np.uint64)
        low, high = (whole & np.uint64(0xFFFFFFFF)).astype(np.uint32), (whole >> np.uint64(32)).astype(np.uint32)
        found = _finished(_mixed(_mixed(seeds, low), high), 8)
    else:
        found = _finished(_mixed(seeds, np.asarray(values).astype(np.int32).view(np.uint32)), 4)
    return found if valid is None else np.where(valid, found, seeds)


def _places(hashed: Any, subpartitions: int) -> Any:
    import numpy as np

    return hashed.view(np.int32).astype(np.int64) % subpartitions


def _rotated(values: Any, bits: int) -> Any:
    return (values << bits) | (values >> (32 - bits))


def _mixed(hashed: Any, words: Any) -> Any:
    import numpy as np

    words = _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashed ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashed: Any, length: int) -> Any:
    import numpy as np

    hashed = hashed ^ np.uint32(length)
    hashed = (hashed ^ (hashed >> 16)) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> 13)) * np.uint32(0xC2B2AE35)
    return hashed ^ (hashed >> 16)
