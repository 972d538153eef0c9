"""Products of decimals, such as a price and a discount, whose type is longer than their values.

The product of two decimals of up to 18 digits has up to 36 digits by its type, but most products fit into 64 bits.
DuckDB multiplies in 64 bits two to three times as fast as in 128, and checks for overflows. So a query is first
computed with short products, and if these overflow, with long ones.

The SQL of a query has macros for such products (``NativeArithmetic.java``) and sums of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeVar

from penstock.duckdb.worker.engine import NotNativeError

T = TypeVar("T")


class Length(Enum):
    """The number of bits of a product: 64 or 128."""

    SHORT = "a * b"
    LONG = "CAST(CAST(a AS DECIMAL(38, {factor_scale})) * b AS DECIMAL({precision}, {scale}))"


_PRODUCT = re.compile(r"\bproduct_(\d+)_(\d+)_(\d+)\(")
"""A call of a macro; its name has the precision and scale of the product, and the scale of its first factor."""
_SUMS = {
    Length.SHORT: "sum(x)",  # 64-bit numbers, whose sum fits into 128 bits
    Length.LONG: "CASE WHEN sum(abs(x)) > bound THEN error('a sum that may not fit') ELSE sum(x) END",
}
_OVERFLOW = "verflow"
"""Part of DuckDB's errors for numbers that do not fit: "Overflow in ...", or "overflow"."""


def define_macros(connection: Any, statements: Sequence[str], length: Length = Length.LONG) -> None:
    """Define the macros of some statements. Long products have the type of Spark."""
    macros = {match for sql in statements for match in _PRODUCT.findall(sql)}
    for precision, scale, factor_scale in sorted(macros):
        product = length.value.format(precision=precision, scale=scale, factor_scale=factor_scale)
        connection.execute(f"CREATE TEMP MACRO product_{precision}_{scale}_{factor_scale}(a, b) AS {product}")
    if macros:
        connection.execute(f"CREATE TEMP MACRO sum_of_products(x, bound) AS {_SUMS[length]}")


def compute_short_first(statements: Sequence[str], compute: Callable[[Length], Iterator[T]]) -> Iterator[T]:
    """Yield the results of some statements, with long products if they have no products or if short products overflow.

    `compute` returns an iterator of the results. After the first result, an overflow is an error of the statements.
    """
    if not any(map(_PRODUCT.search, statements)):
        yield from compute(Length.LONG)
        return
    results = compute(Length.SHORT)
    try:
        first = next(results, None)
    except NotNativeError as error:
        if _OVERFLOW not in str(error):
            raise
        results, first = compute(Length.LONG), None
    if first is not None:
        yield first
    yield from results
