"""Finds the differing rows of two DataFrames on the executors; only a few of them are sent to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.run.fingerprint import TOLERANCE, columns_of, rename_columns
from penstock.spark.run.row_hashes import float_arrays, row_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.spark.bridge.jvm import Bridge

ABSOLUTE_TOLERANCE = 1e-12
"""Doubles that differ by less are equal, however small they are."""
FLOAT_TOLERANCE = 3e-7
"""The relative tolerance of 32-bit floats: a few units of the last digit."""
MAX_UNMATCHED = 1000
"""With more rows without a partner, rows are not matched individually."""

Key = tuple[int, int]
Floats = tuple[tuple[float | None, ...], tuple[float | None, ...]]
RowKey = tuple[Key, Floats | None]
"""Identifies rows: two hashes without doubles and floats, and the doubles and floats; None for any values."""
Differences = tuple[list[RowKey], list[RowKey]]


def exact_differences(bridge: Bridge, ours: DataFrame, theirs: DataFrame, most: int) -> Differences:
    """Return the keys of rows that are more frequent in `ours`, then in `theirs`, ignoring doubles and floats."""
    signed = [_with_keys(bridge, df).select("a", "b", F.lit(sign).alias("n")) for df, sign in ((ours, 1), (theirs, -1))]
    left = signed[0].union(signed[1]).groupBy("a", "b").agg(F.sum("n").alias("n"))
    more, less = (left.where(condition).limit(most).collect() for condition in ("n > 0", "n < 0"))
    return [((row.a, row.b), None) for row in more], [((row.a, row.b), None) for row in less]


def float_differences(bridge: Bridge, ours: DataFrame, theirs: DataFrame) -> Differences | None:
    """Return the rows without a partner whose doubles and floats are nearly equal; None if there are many.

    Partners are equal except for doubles and floats. Rows with equal keys are paired in the order of their values.
    Pairs that do not fit, as values of two columns may swap their order, are matched individually.
    """
    by_value = Window.partitionBy("a", "b").orderBy("d", "f")
    index = F.row_number().over(by_value).alias("i")
    sides = [_with_keys(bridge, df).select("a", "b", "d", "f", index) for df in (ours, theirs)]
    right = sides[1].withColumnsRenamed({"d": "d2", "f": "f2"})
    paired = sides[0].join(right, ["a", "b", "i"], "full")
    fits = _near("d", "d2", TOLERANCE) & _near("f", "f2", FLOAT_TOLERANCE)
    left = paired.where(~F.coalesce(fits, F.lit(False))).limit(MAX_UNMATCHED + 1).collect()
    if len(left) > MAX_UNMATCHED:
        return None
    mine = [((row.a, row.b), (tuple(row.d), tuple(row.f))) for row in left if row.d is not None]
    other = [((row.a, row.b), (tuple(row.d2), tuple(row.f2))) for row in left if row.d2 is not None]
    return unmatched(mine, other)


def unmatched(ours: Iterable[tuple[Key, Floats]], theirs: Iterable[tuple[Key, Floats]]) -> Differences:
    """Return the rows without a partner that has the same key and nearly equal values."""
    free: dict[Key, list[Floats]] = {}
    for key, values in theirs:
        free.setdefault(key, []).append(values)
    alone: list[RowKey] = []
    for key, values in ours:
        candidates = free.get(key, [])
        partner = next((i for i, other in enumerate(candidates) if _fit(values, other)), None)
        if partner is None:
            alone.append((key, values))
        else:
            candidates.pop(partner)
    return alone, [(key, values) for key, rest in free.items() for values in rest]


def rows_with(bridge: Bridge, df: DataFrame, keys: Sequence[RowKey], most: int) -> list[tuple[str | None, ...]]:
    """Return some of the distinct rows with some keys, with their values as strings."""
    if not keys:
        return []
    plain = _with_keys(bridge, df)
    columns = columns_of(plain)[: len(df.columns)]
    is_selected = F.lit(False)
    for (a, b), floats in keys[:most]:
        is_match = (F.col("a") == a) & (F.col("b") == b)
        if floats is not None:
            for name, values in zip("df", floats, strict=True):
                is_match &= F.col(name) == F.array(*map(F.lit, values)).cast("array<double>")
        is_selected |= is_match
    shown = [_shown(column, kind).alias(f"s{i}") for i, (column, kind) in enumerate(columns)]
    return [tuple(row) for row in plain.where(is_selected).select(*shown).distinct().limit(most).collect()]


def _with_keys(bridge: Bridge, df: DataFrame) -> DataFrame:
    """Rename the columns; add two hashes without doubles and floats, and arrays of the doubles and floats."""
    plain = rename_columns(df)
    columns = columns_of(plain)
    hashes = [row_hash(bridge, columns, 3 + i, with_floats=False).alias(name) for i, name in enumerate("ab")]
    arrays = [float_arrays(bridge, columns, kind) for kind in ("DoubleType", "FloatType")]
    none = F.array().cast("array<double>")
    floats = [(none if array is None else array).alias(name) for array, name in zip(arrays, "df", strict=True)]
    return plain.select("*", *hashes, *floats)


def _near(ours: str, theirs: str, tolerance: float) -> Column:
    """Whether two arrays of equal length are nearly equal; null if an array is null."""

    def fit(x: Column, y: Column) -> Column:
        allowed = F.greatest(F.abs(x), F.abs(y)) * tolerance
        is_near = F.abs(x - y) <= F.greatest(allowed, F.lit(ABSOLUTE_TOLERANCE))
        return (x.isNull() & y.isNull()) | F.coalesce(is_near, F.lit(False))

    return (F.size(ours) == F.size(theirs)) & F.forall(F.zip_with(ours, theirs, fit), lambda fits: fits)


def _fit(ours: Floats, theirs: Floats) -> bool:
    pairs = zip(ours, theirs, (TOLERANCE, FLOAT_TOLERANCE), strict=True)
    return all(len(x) == len(y) and all(_same(*pair, t) for pair in zip(x, y, strict=True)) for x, y, t in pairs)


def _same(x: float | None, y: float | None, tolerance: float) -> bool:
    if x is None or y is None:
        return x is y
    return abs(x - y) <= max(ABSOLUTE_TOLERANCE, tolerance * max(abs(x), abs(y)))


def _shown(column: Column, kind: Any) -> Column:
    name = type(kind).__name__
    if name == "BinaryType":
        return F.hex(column)
    return F.hex(F.call_function("st_asbinary", column)) if name.startswith("Geo") else column.cast("string")
