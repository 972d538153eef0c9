"""How values travel between DuckDB, Arrow and Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.native.columns import Column, sent_schema

DECIMALS = st.lists(st.none() | st.decimals(-(10**16) + 1, 10**16 - 1, places=2), max_size=40)


@settings(deadline=None)  # numpy is imported first
@given(values=DECIMALS, skipped=st.integers(0, 3))
def test_short_decimals_travel_as_whole_numbers(values: list[Decimal | None], skipped: int) -> None:
    column = Column("c", "decimal(18,2)")
    there = pa.array(values, pa.decimal128(18, 2))[skipped:]
    sent = column.to_sent(there)
    assert sent.type == pa.int64()
    assert sent.to_pylist() == [None if one is None else int(one * 100) for one in values[skipped:]]
    assert column.from_sent(sent).to_pylist() == there.to_pylist()


@pytest.mark.parametrize(
    ("type_name", "values"),
    [("decimal(19,2)", [Decimal("1.25"), None]), ("string", ["a", None]), ("date", [None]), ("boolean", [True, None])],
)
def test_other_values_travel_as_they_are(type_name: str, values: list[object]) -> None:
    column = Column("c", type_name)
    there = pa.array(values, column.arrow_type())
    assert column.to_sent(there).equals(there)
    assert column.from_sent(there).equals(there)


def test_the_schema_of_what_travels() -> None:
    columns = [Column("a", "decimal(7,2)"), Column("b", "decimal(38,2)"), Column("c", "date")]
    assert sent_schema(columns) == pa.schema([("a", pa.int64()), ("b", pa.decimal128(38, 2)), ("c", pa.date32())])
