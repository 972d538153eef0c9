"""Checksums of a DataFrame's rows, independent of their order, computed on the executors while the rows flow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.spark.bridge.handles import InternalRows, Session
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.run.row_hashes import FLOATS, float_arrays, row_hash

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.spark.bridge.jvm import Bridge

TOLERANCE = 1e-9
"""The relative difference up to which two doubles are equal."""
_METRIC = "penstock fingerprint"
_HASH_BITS = 21
"""A hash is summed in parts of this many bits: the sum of up to 2^41 parts fits into 64 bits."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A summary of a DataFrame's rows; equal rows in any order have equal fingerprints."""

    rows: int
    hashes: tuple[int, int]
    """The sums of two independent 64-bit hashes of each row."""
    exact_hash: int
    """The sum of another 64-bit hash of each row, which ignores finite doubles and floats."""
    column_hashes: tuple[int, ...]
    """Per column, the sum of a 31-bit hash of its values, which ignores finite doubles and floats."""
    sums: Mapping[int, tuple[float, float]]
    """Per column with doubles or floats, the sums of the finite values and of their absolute values."""
    weighted_sums: tuple[float, float]
    """`sums` over all columns, with each row weighted by its exact hash, to detect that rows have swapped values."""

    def equals(self, other: Fingerprint) -> bool:
        """Whether the rows are equal, including all digits of doubles and floats."""
        return self.rows == other.rows and self.hashes == other.hashes

    def equals_except_floats(self, other: Fingerprint) -> bool:
        """Whether the rows are equal if doubles and floats are ignored."""
        return self.rows == other.rows and self.exact_hash == other.exact_hash

    def may_equal(self, other: Fingerprint) -> bool:
        """Whether the rows may be equal except for the last digits of doubles and floats, according to their sums."""
        return self.equals_except_floats(other) and _are_close(self.weighted_sums, other.weighted_sums)

    def differing_columns(self, other: Fingerprint) -> list[int]:
        """Return the indexes of the columns whose values differ."""
        pairs = enumerate(zip(self.column_hashes, other.column_hashes, strict=True))
        differing = {i for i, (ours, theirs) in pairs if ours != theirs}
        return sorted(differing | {i for i, sums in self.sums.items() if not _are_close(sums, other.sums[i])})


def fingerprint(df: DataFrame, bridge: Bridge) -> Fingerprint:
    """Run a DataFrame, and return the fingerprint of its rows; no rows are sent to the driver."""
    observed, float_columns = _observed(df, bridge)
    counted = observed.groupBy().count()
    counted.collect()
    return _metrics(counted, len(df.columns), float_columns)


class FingerprintedRows:
    """A DataFrame `df` that returns the rows of another DataFrame, fingerprinted while a consumer reads them."""

    def __init__(self, df: DataFrame, bridge: Bridge) -> None:
        self._width = len(df.columns)
        observed, self._float_columns = _observed(df, bridge)
        self._observed = observed.select(*_names(df))
        rdd = self._observed._jdf.queryExecution().toRdd()
        session = Session(bridge, df._jdf.sparkSession())
        leaf = rdd_leaf(session, analyzed_plan(bridge, df).output, InternalRows(bridge, rdd))
        self.df = dataframe(session, leaf)

    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the rows that have been read so far."""
        return _metrics(self._observed, self._width, self._float_columns)


def typed_columns(df: DataFrame) -> list[tuple[Column, Any]]:
    """Return the columns of a DataFrame from `rename_columns`, each with its type."""
    return [(F.col(field.name), field.dataType) for field in df.schema.fields]


def rename_columns(df: DataFrame) -> DataFrame:
    """Replace the column names of a DataFrame, as a user's names may be equal or contain dots."""
    return df.toDF(*_names(df))


def _names(df: DataFrame) -> list[str]:
    return [f"c{i}" for i in range(len(df.columns))]


def _observed(df: DataFrame, bridge: Bridge) -> tuple[DataFrame, list[int]]:
    """Return a DataFrame with new column names and with metrics, and the indexes of columns with doubles or floats."""
    plain = rename_columns(df)
    columns = typed_columns(plain)
    # New columns: h1 and h2, hashes of the row; x0, x1 and so on, exact hashes of its values; e, its exact hash.
    hashes = {f"h{seed}": row_hash(bridge, columns, seed, with_floats=True) for seed in (1, 2)}
    hashes |= {f"x{i}": row_hash(bridge, [column], 3, with_floats=False) for i, column in enumerate(columns)}
    with_hashes = plain.select("*", *(column.alias(name) for name, column in hashes.items()))
    with_hashes = with_hashes.withColumn("e", F.xxhash64(F.lit(4), *(F.col(f"x{i}") for i in range(len(columns)))))
    sums, magnitudes, float_columns = [], [], []
    for i, column in enumerate(columns):
        arrays = [array for name in FLOATS if (array := float_arrays(bridge, [column], name)) is not None]
        if arrays:
            float_columns.append(i)
            sums.append(_total(arrays, lambda value: value))
            magnitudes.append(_total(arrays, F.abs))
    weight = F.col("e").bitwiseAND(F.lit(1023)) / 1024 + 0.5  # between 0.5 and 1.5
    weighted = [weight * sum(values, F.lit(0.0)) for values in (sums, magnitudes)]
    metrics = [F.count(F.lit(1))]  # `_metrics` reads them in this order
    metrics += [part for name in ("h1", "h2", "e") for part in _sum_of_hashes(F.col(name))]
    metrics += [F.sum(F.col(f"x{i}").bitwiseAND(F.lit((1 << 31) - 1))) for i in range(len(columns))]
    metrics += [F.sum(value) for value in (*sums, *magnitudes, *weighted)]
    observed = with_hashes.observe(_METRIC, *(metric.alias(f"m{i}") for i, metric in enumerate(metrics)))
    return observed, float_columns


def _sum_of_hashes(column: Column) -> list[Column]:
    mask = F.lit((1 << _HASH_BITS) - 1)
    low, middle = column.bitwiseAND(mask), F.shiftright(column, _HASH_BITS).bitwiseAND(mask)
    return [F.sum(low), F.sum(middle), F.sum(F.shiftright(column, 2 * _HASH_BITS))]


def _total(arrays: list[Column], term: Any) -> Column:
    zero = F.lit(0.0)
    return sum((F.aggregate(array, zero, lambda sum_, x: sum_ + F.coalesce(term(x), zero)) for array in arrays), zero)


def _metrics(df: DataFrame, width: int, float_columns: list[int]) -> Fingerprint:
    row = df._jdf.queryExecution().observedMetrics().apply(_METRIC)
    words = ["0" if word == "null" else word for word in row.mkString(" ").split(" ")]  # a sum of no rows is null
    integers = list(map(int, words[: 10 + width]))  # number of rows, three hashes in three parts each, column hashes
    floats = list(map(float, words[10 + width :]))
    pairs = zip(floats[: len(float_columns)], floats[len(float_columns) :], strict=False)

    def hash_at(index: int) -> int:
        return sum(integers[index + i] << (i * _HASH_BITS) for i in range(3))

    return Fingerprint(
        integers[0],
        (hash_at(1), hash_at(4)),
        hash_at(7),
        tuple(integers[10:]),
        dict(zip(float_columns, pairs, strict=True)),
        (floats[-2], floats[-1]),
    )


def _are_close(ours: tuple[float, float], theirs: tuple[float, float]) -> bool:
    """Whether two sums are nearly equal, or any is not finite; a pair is a sum, and the sum of the absolute values."""
    if not all(map(math.isfinite, (*ours, *theirs))):
        return True
    return abs(ours[0] - theirs[0]) <= TOLERANCE * max(ours[1], theirs[1])
