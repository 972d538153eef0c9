"""Products of decimals: short as long as they fit into 64 bits, otherwise long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

import pytest

import duckdb
from penstock.duckdb.worker import products
from penstock.duckdb.worker.engine import NotNativeError
from penstock.duckdb.worker.products import Length

PRODUCT = "product_38_6_4(product_36_4_2(a, b), c)"
SQL = f"SELECT CAST(sum_of_products({PRODUCT}, 1e20) AS DECIMAL(38,6)), typeof({PRODUCT}) FROM t GROUP BY ALL"
TYPES = {Length.SHORT: "DECIMAL(18,6)", Length.LONG: "DECIMAL(38,6)"}
OVERFLOW = "[Oo]verflow"


@pytest.mark.parametrize("length", Length)
@pytest.mark.parametrize(
    ("factors", "short_error", "long_error"),
    [
        (("1.50", "2.25", "-4.00"), "", ""),
        (("9999999999999999.99", "0.00", "1.00"), "", ""),
        (("99999999.99", "99.99", "9999999.99"), OVERFLOW, ""),
        (("9999999999999999.99", "2.00", "1.00"), OVERFLOW, ""),
        (("99999999.99", "999999.99", "999999999.99"), OVERFLOW, "may not fit"),
    ],
)
def test_short_products_have_the_same_value_or_overflow(
    factors: tuple[str, ...], short_error: str, long_error: str, length: Length
) -> None:
    error = long_error if length is Length.LONG else short_error
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a DECIMAL(18,2), b DECIMAL(18,2), c DECIMAL(18,2))")
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", list(map(Decimal, factors)))
        products.define_macros(connection, [SQL], length)
        if error:
            with pytest.raises(duckdb.Error, match=error):
                connection.execute(SQL).fetchall()
        else:
            expected = math.prod(map(Decimal, factors))
            assert connection.execute(SQL).fetchall() == [(expected, TYPES[length])]


OVERFLOWING = NotNativeError("Overflow in multiplication of DECIMAL(18)")


@pytest.mark.parametrize(
    ("sql", "results", "expected"),
    [
        ("SELECT sum(c1 * c2) FROM t", {Length.LONG: [1, 2]}, [1, 2]),
        (SQL, {Length.SHORT: [1, 2]}, [1, 2]),
        (SQL, {Length.SHORT: []}, []),
        (SQL, {Length.SHORT: [OVERFLOWING], Length.LONG: [3]}, [3]),
        (SQL, {Length.SHORT: [1, OVERFLOWING]}, None),
        (SQL, {Length.SHORT: [OVERFLOWING], Length.LONG: [OVERFLOWING]}, None),
        (SQL, {Length.SHORT: [NotNativeError("out of memory")]}, None),
    ],
)
def test_long_products_are_computed_after_an_overflow(
    sql: str, results: dict[Length, list[object]], expected: list[object] | None
) -> None:
    def compute(length: Length) -> Iterator[object]:
        for result in results[length]:
            if isinstance(result, NotNativeError):
                raise result
            yield result

    computed = products.compute_short_first([sql], compute)
    if expected is None:
        with pytest.raises(NotNativeError):
            list(computed)
    else:
        assert list(computed) == expected
