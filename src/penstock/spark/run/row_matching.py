"""Finds the differing rows of two DataFrames on the executors; only a few of them are sent to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.run.fingerprint import TOLERANCE, rename_columns, typed_columns
from penstock.spark.run.row_hashes import float_arrays, row_hash

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

ABSOLUTE_TOLERANCE = 1e-12
"""Doubles and floats that differ by at most this are equal, however small they are."""
FLOAT_TOLERANCE = 3e-7
"""The relative tolerance of 32-bit floats: a few units of the last digit."""
MAX_UNMATCHED = 1000
"""The maximum number of differing pairs of rows whose rows are matched individually."""

Key = tuple[int, int]
Floats = tuple[tuple[float | None, ...], tuple[float | None, ...]]  # doubles, 32-bit floats; None if not finite
RowKey = tuple[Key, Floats | None]
"""Identifies rows: two hashes that ignore finite doubles and floats, and these values; None to ignore the values."""
Differences = tuple[list[RowKey], list[RowKey]]
"""The rows that only our DataFrame has, or has more often, and those that only the other DataFrame has."""


def exact_differences(bridge: Bridge, ours: DataFrame, theirs: DataFrame, max_keys: int) -> Differences:
    """Return the differences if finite doubles and floats are ignored; at most `max_keys` of each DataFrame."""
    signed = [_with_keys(bridge, df).select("a", "b", F.lit(sign).alias("n")) for df, sign in ((ours, 1), (theirs, -1))]
    counts = signed[0].union(signed[1]).groupBy("a", "b").agg(F.sum("n").alias("n"))
    our_rows, their_rows = (counts.where(condition).limit(max_keys).collect() for condition in ("n > 0", "n < 0"))
    return [((row.a, row.b), None) for row in our_rows], [((row.a, row.b), None) for row in their_rows]


def float_differences(bridge: Bridge, ours: DataFrame, theirs: DataFrame) -> Differences | None:
    """Return the rows without a partner; None if more than `MAX_UNMATCHED` pairs of rows do not match.

    A partner is a row of the other DataFrame with the same key and nearly equal doubles and floats. Rows with equal
    keys are paired in the order of these values. As nearly equal rows may be in another order in the other DataFrame,
    the rows of pairs that do not match are matched individually.
    """
    by_value = Window.partitionBy("a", "b").orderBy("d", "f")
    index = F.row_number().over(by_value).alias("i")
    sides = [_with_keys(bridge, df).select("a", "b", "d", "f", index) for df in (ours, theirs)]
    right = sides[1].withColumnsRenamed({"d": "d2", "f": "f2"})
    paired = sides[0].join(right, ["a", "b", "i"], "full")
    are_near = _near("d", "d2", TOLERANCE) & _near("f", "f2", FLOAT_TOLERANCE)
    unpaired = paired.where(~F.coalesce(are_near, F.lit(False))).limit(MAX_UNMATCHED + 1).collect()
    if len(unpaired) > MAX_UNMATCHED:
        return None
    our_rows = [((row.a, row.b), (tuple(row.d), tuple(row.f))) for row in unpaired if row.d is not None]
    their_rows = [((row.a, row.b), (tuple(row.d2), tuple(row.f2))) for row in unpaired if row.d2 is not None]
    return unmatched(our_rows, their_rows)


def unmatched(ours: Iterable[tuple[Key, Floats]], theirs: Iterable[tuple[Key, Floats]]) -> Differences:
    """Return the rows without a partner, see `float_differences`; no row is the partner of two rows."""
    available: dict[Key, list[Floats]] = {}
    for key, values in theirs:
        available.setdefault(key, []).append(values)
    without_partner: list[RowKey] = []
    for key, values in ours:
        candidates = available.get(key, [])
        partner = next((i for i, other in enumerate(candidates) if _are_near(values, other)), None)
        if partner is None:
            without_partner.append((key, values))
        else:
            candidates.pop(partner)
    return without_partner, [(key, values) for key, remaining in available.items() for values in remaining]


def rows_with(bridge: Bridge, df: DataFrame, keys: Sequence[RowKey], max_rows: int) -> list[tuple[str | None, ...]]:
    """Return at most `max_rows` distinct rows with any of the first `max_rows` keys; the values are strings."""
    if not keys:
        return []
    keyed = _with_keys(bridge, df)
    columns = typed_columns(keyed)[: len(df.columns)]
    is_selected = F.lit(False)
    for (a, b), floats in keys[:max_rows]:
        is_match = (F.col("a") == a) & (F.col("b") == b)
        if floats is not None:
            for name, values in zip("df", floats, strict=True):
                is_match &= F.col(name) == F.array(*map(F.lit, values)).cast("array<double>")
        is_selected |= is_match
    shown = [_shown(column, data_type).alias(f"s{i}") for i, (column, data_type) in enumerate(columns)]
    return [tuple(row) for row in keyed.where(is_selected).select(*shown).distinct().limit(max_rows).collect()]


def _with_keys(bridge: Bridge, df: DataFrame) -> DataFrame:
    """Rename all columns; add hashes a and b that ignore finite doubles and floats, and arrays of these: d and f."""
    plain = rename_columns(df)
    columns = typed_columns(plain)
    hashes = [row_hash(bridge, columns, 3 + i, with_floats=False).alias(name) for i, name in enumerate("ab")]
    arrays = [float_arrays(bridge, columns, type_name) for type_name in ("DoubleType", "FloatType")]
    no_values = F.array().cast("array<double>")
    floats = [(no_values if array is None else array).alias(name) for array, name in zip(arrays, "df", strict=True)]
    return plain.select("*", *hashes, *floats)


def _near(ours: str, theirs: str, tolerance: float) -> Column:
    """Whether two arrays have the same length and nearly equal elements; null if an array is null."""

    def fit(x: Column, y: Column) -> Column:
        allowed = F.greatest(F.abs(x), F.abs(y)) * tolerance
        is_near = F.abs(x - y) <= F.greatest(allowed, F.lit(ABSOLUTE_TOLERANCE))
        return (x.isNull() & y.isNull()) | F.coalesce(is_near, F.lit(False))

    return (F.size(ours) == F.size(theirs)) & F.forall(F.zip_with(ours, theirs, fit), lambda fits: fits)


def _are_near(ours: Floats, theirs: Floats) -> bool:
    pairs = zip(ours, theirs, (TOLERANCE, FLOAT_TOLERANCE), strict=True)
    return all(len(x) == len(y) and all(_is_near(*pair, t) for pair in zip(x, y, strict=True)) for x, y, t in pairs)


def _is_near(x: float | None, y: float | None, tolerance: float) -> bool:
    if x is None or y is None:
        return x is y
    return abs(x - y) <= max(ABSOLUTE_TOLERANCE, tolerance * max(abs(x), abs(y)))


def _shown(column: Column, data_type: Any) -> Column:
    name = type(data_type).__name__
    if name == "BinaryType":
        return F.hex(column)
    return F.hex(F.call_function("st_asbinary", column)) if name.startswith("Geo") else column.cast("string")
