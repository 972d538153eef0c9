"""Hash partitioning of columnar rows, which agrees with Spark's own exchange."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.hashing import hash_int, hash_row
from penstock.duckdb.worker import scatter
from penstock.duckdb.worker.columns import Column
from penstock.duckdb.worker.scatter import Scatter, routing_numbers

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "date": st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "decimal(18,2)": st.decimals(-(10**16) + 1, 10**16 - 1, places=2),
    "float": st.floats(width=32, allow_nan=False) | st.just(float("nan")),
    "double": st.floats(allow_nan=False) | st.sampled_from([float("nan"), -0.0]),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "timestamp_ntz": st.datetimes(),
}


def wire_batch(columns: list[Column], rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    arrays = [
        column.to_wire(pa.array([row[index] for row in rows], column.arrow_type()))
        for index, column in enumerate(columns)
    ]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


@settings(deadline=None)  # numpy is imported first
@given(data=st.data(), subpartitions=st.sampled_from([1, 2, 7, 200, 70_000]))
def test_subpartitions_are_those_of_spark(data: st.DataObject, subpartitions: int) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    columns = [Column(f"c{index}", name) for index, name in enumerate(types)]
    rows = data.draw(st.lists(st.tuples(*(st.none() | VALUES[name] for name in types)), min_size=1, max_size=20))
    scatterer = Scatter(tuple(range(len(columns))), tuple(range(subpartitions)))
    subpartitions_of_rows = scatterer.subpartitions(wire_batch(columns, rows), columns).tolist()
    assert subpartitions_of_rows == [hash_row(row, types) % subpartitions for row in rows]


@pytest.mark.parametrize("subpartitions", [1, 3, 128, 1000])
def test_routing_numbers_hash_to_each_subpartition(subpartitions: int) -> None:
    assert [hash_int(number) % subpartitions for number in routing_numbers(subpartitions)] == list(range(subpartitions))


@pytest.mark.parametrize("at_a_time", [1 << 20, 1])
def test_all_rows_arrive(monkeypatch: pytest.MonkeyPatch, at_a_time: int) -> None:
    """In a single message per subpartition, and in many."""
    monkeypatch.setattr(scatter, "_MAX_BUFFERED_BYTES", at_a_time)
    columns = [Column("k", "bigint"), Column("s", "string"), Column("d", "decimal(5,2)")]
    rows = [(key, f"row {key}", Decimal(key)) for key in range(300)]
    scatterer = Scatter((0,), routing_numbers(8))
    batches = [wire_batch(columns, rows[:100]), wire_batch(columns, []), wire_batch(columns, rows[100:])]
    received = []
    for routed in scatterer.scatter(iter(batches), columns):
        for number, message in zip(routed.column("routing_number").to_pylist(), routed.column("batch"), strict=True):
            part = pa.ipc.read_record_batch(message.as_buffer(), batches[0].schema)
            assert {
                scatterer.routing_numbers[hash_row([key], ["bigint"]) % 8] for key in part.column("k").to_pylist()
            } == {number}
            received += part.to_pylist()
    assert sorted(row["k"] for row in received) == list(range(300))
    assert all(row["s"] == f"row {row['k']}" and row["d"] == row["k"] * 100 for row in received)


def test_no_batches_without_rows() -> None:
    columns = [Column("k", "bigint")]
    assert list(Scatter((0,), routing_numbers(8)).scatter(iter([wire_batch(columns, [])]), columns)) == []
