"""Dealing out rows of columns: each where Spark's own exchange would put it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.hashing import hash_int, hash_row
from penstock.native import scatter
from penstock.native.columns import Column
from penstock.native.scatter import Scatter, numbers_of

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "date": st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "decimal(18,2)": st.decimals(-(10**16) + 1, 10**16 - 1, places=2),
}


def sent(columns: list[Column], rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = [
        column.to_sent(pa.array([row[place] for row in rows], column.arrow_type()))
        for place, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


@settings(deadline=None)  # numpy is imported first
@given(data=st.data(), subpartitions=st.sampled_from([1, 2, 7, 200, 70_000]))
def test_rows_go_where_spark_puts_them(data: st.DataObject, subpartitions: int) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    columns = [Column(f"c{place}", name) for place, name in enumerate(types)]
    rows = data.draw(st.lists(st.tuples(*(st.none() | VALUES[name] for name in types)), min_size=1, max_size=20))
    dealer = Scatter(tuple(range(len(columns))), tuple(range(subpartitions)))
    found = dealer.subpartitions(sent(columns, rows), columns).tolist()
    assert found == [hash_row(row, types) % subpartitions for row in rows]


@pytest.mark.parametrize("subpartitions", [1, 3, 128, 1000])
def test_a_number_of_each_subpartition(subpartitions: int) -> None:
    assert [hash_int(number) % subpartitions for number in numbers_of(subpartitions)] == list(range(subpartitions))


@pytest.mark.parametrize("at_a_time", [1 << 20, 1])
def test_all_rows_arrive(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    """In one go, and batch by batch."""
    monkeypatch.setattr(scatter, "_MOST_BYTES", at_a_time)
    columns = [Column("k", "bigint"), Column("s", "string"), Column("d", "decimal(5,2)")]
    rows = [(key, f"row {key}", Decimal(key)) for key in range(300)]
    dealer = Scatter((0,), numbers_of(8))
    batches = [sent(columns, rows[:100]), sent(columns, []), sent(columns, rows[100:])]
    found = []
    for dealt in dealer.dealt(iter(batches), columns):
        for number, message in zip(dealt.column("place").to_pylist(), dealt.column("batch"), strict=True):
            part = pa.ipc.read_record_batch(message.as_buffer(), batches[0].schema)
            assert {dealer.numbers[hash_row([key], ["bigint"]) % 8] for key in part.column("k").to_pylist()} == {number}
            found += part.to_pylist()
    assert sorted(row["k"] for row in found) == list(range(300))
    assert all(row["s"] == f"row {row['k']}" and row["d"] == row["k"] * 100 for row in found)


def test_no_rows_are_no_batches() -> None:
    columns = [Column("k", "bigint")]
    assert list(Scatter((0,), numbers_of(8)).dealt(iter([sent(columns, [])]), columns)) == []
