"""Products of decimals, such as a price and a discount, whose type is longer than their values.

The product of two decimals of up to 18 digits has up to 36 digits by its type, for which DuckDB needs 128 bits. Most
products fit into 64 bits, which is two to three times as fast. DuckDB checks the short products for overflows, so
a query can first be computed with short products, and after an overflow with long ones.

The SQL of a query has macros for such products (``NativeArithmetic.java``) and sums of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PRODUCT = re.compile(r"\bproduct_(\d+)_(\d+)\(")
_LONG_SUM = "CASE WHEN sum(abs(x)) > bound THEN error('a sum that may not fit') ELSE sum(x) END"
_SHORT_SUM = "sum(x)"
"""Sums of 64-bit numbers fit into the 128 bits of a sum."""
OVERFLOW = "verflow"
"""Part of DuckDB's errors for numbers that do not fit: "Overflow in ...", or "overflow"."""


def has_products(sql: str) -> bool:
    """Whether a query has products of decimals that may be short or long.

    >>> has_products("SELECT sum_of_products(product_32_4(c1 * c2), 9) FROM scan_0")
    True
    """
    return _PRODUCT.search(sql) is not None


def define(connection: Any, statements: Sequence[str], *, are_long: bool = True) -> None:
    """Define the macros of some statements for long products, which have the type of Spark, or for short products."""
    types = sorted({match for sql in statements for match in _PRODUCT.findall(sql)})
    for precision, scale in types:
        value = f"CAST(x AS DECIMAL({precision}, {scale}))" if are_long else "x"
        connection.execute(f"CREATE TEMP MACRO product_{precision}_{scale}(x) AS {value}")
    if types:
        connection.execute(f"CREATE TEMP MACRO sum_of_products(x, bound) AS {_LONG_SUM if are_long else _SHORT_SUM}")
