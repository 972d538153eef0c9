"""Products of decimals: short as long as they fit into 64 bits, otherwise long."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

import duckdb
from penstock.duckdb.worker import products

PRODUCT = "product_38_6(product_36_4(a * b) * c)"
SQL = f"SELECT CAST(sum_of_products({PRODUCT}, 1e20) AS DECIMAL(38,6)), typeof({PRODUCT}) FROM t GROUP BY ALL"
TYPES = {False: "DECIMAL(18,6)", True: "DECIMAL(38,6)"}


@pytest.mark.parametrize("are_long", [False, True])
@pytest.mark.parametrize(
    ("factors", "short_error", "long_error"),
    [
        (("1.50", "2.25", "-4.00"), "", ""),
        (("9999999999999999.99", "0.00", "1.00"), "", ""),
        (("99999999.99", "99.99", "9999999.99"), products.OVERFLOW, ""),
        (("99999999.99", "999999.99", "999999999.99"), products.OVERFLOW, "may not fit"),
        (("9999999999999999.99", "2.00", "1.00"), products.OVERFLOW, products.OVERFLOW),
    ],
)
def test_short_products_have_the_same_value_or_overflow(
    factors: tuple[str, ...], short_error: str, long_error: str, *, are_long: bool
) -> None:
    error = long_error if are_long else short_error
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (a DECIMAL(18,2), b DECIMAL(18,2), c DECIMAL(18,2))")
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", list(map(Decimal, factors)))
        products.define(connection, [SQL], are_long=are_long)
        if error:
            with pytest.raises(duckdb.Error, match=error):
                connection.execute(SQL).fetchall()
        else:
            expected = math.prod(map(Decimal, factors))
            assert connection.execute(SQL).fetchall() == [(expected, TYPES[are_long])]


@pytest.mark.parametrize(
    ("sql", "has_products"), [(SQL, True), ("SELECT sum(c1 * c2) FROM t", False), ("SELECT product(c1) FROM t", False)]
)
def test_queries_with_products(sql: str, *, has_products: bool) -> None:
    assert products.has_products(sql) is has_products
