"""The transfer of values between DuckDB, Arrow and Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.duckdb.worker.columns import Column, wire_schema

DECIMALS = st.lists(st.none() | st.decimals(-(10**16) + 1, 10**16 - 1, places=2), max_size=40)


@settings(deadline=None)  # numpy is imported first
@given(values=DECIMALS, skipped=st.integers(0, 3))
def test_short_decimals_are_sent_as_integers(values: list[Decimal | None], skipped: int) -> None:
    column = Column("c", "decimal(18,2)")
    array = pa.array(values, pa.decimal128(18, 2))[skipped:]
    sent = column.to_wire(array)
    assert sent.type == pa.int64()
    assert sent.to_pylist() == [None if value is None else int(value * 100) for value in values[skipped:]]
    assert column.from_wire(sent).to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    ("type_name", "values"),
    [("decimal(19,2)", [Decimal("1.25"), None]), ("string", ["a", None]), ("date", [None]), ("boolean", [True, None])],
)
def test_other_values_are_sent_unchanged(type_name: str, values: list[object]) -> None:
    column = Column("c", type_name)
    array = pa.array(values, column.arrow_type())
    assert column.to_wire(array).equals(array)
    assert column.from_wire(array).equals(array)


def test_wire_schema() -> None:
    columns = [Column("a", "decimal(7,2)"), Column("b", "decimal(38,2)"), Column("c", "date")]
    assert wire_schema(columns) == pa.schema([("a", pa.int64()), ("b", pa.decimal128(38, 2)), ("c", pa.date32())])
