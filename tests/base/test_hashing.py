"""The hash in Python equals Spark's."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as h

from penstock.base.hashing import hash_int, hash_row, hash_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DECIMALS = h.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**6), max_value=10**6, places=3)
WIDE = h.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**25), max_value=10**25, places=3)
VALUES = {
    "boolean": h.booleans(),
    "tinyint": h.integers(-128, 127),
    "smallint": h.integers(-(2**15), 2**15 - 1),
    "int": h.integers(-(2**31), 2**31 - 1),
    "bigint": h.integers(-(2**63), 2**63 - 1),
    "float": h.floats(width=32, allow_nan=False),
    "double": h.floats(allow_nan=False),
    "string": h.text(h.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    "binary": h.binary(max_size=12),
    "date": h.dates(dt.date(1600, 1, 1), dt.date(2400, 1, 1)),
    "timestamp_ntz": h.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2400, 1, 1)),
    "decimal(10,3)": DECIMALS,
    "decimal(38,3)": WIDE,
}


@settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=h.data())
def test_hashes_of_random_rows_are_those_of_spark(spark: SparkSession, data: Path) -> None:
    names = list(VALUES)
    rows = data.draw(h.lists(h.tuples(*(h.none() | VALUES[name] for name in names)), min_size=1, max_size=30))
    schema = ", ".join(f"c{i} {name}" for i, name in enumerate(names))
    columns = [f"c{i}" for i in range(len(names))]
    each = ", ".join(f"hash({column})" for column in columns)
    hashes = spark.createDataFrame(rows, schema).selectExpr(f"array({each})", f"hash({', '.join(columns)})", *columns)
    for separate, together, *values in hashes.collect():
        assert [hash_value(value, name) for value, name in zip(values, names, strict=True)] == separate
        assert hash_row(values, names) == together


@pytest.mark.parametrize(
    ("value", "expected"),
    # From Spark's `hash(int)`.
    [(0, 933211791), (1, -559580957), (42, 29417773), (-1, -1604776387)],
)
def test_hashes_of_integers_are_those_of_spark(value: int, expected: int) -> None:
    assert hash_int(value) == expected


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match="interval"):
        hash_value(decimal.Decimal(1), "interval day")
