"""Whether DuckDB pays for a part of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.native.columns import Column
from penstock.spark.native_part_facts import PartFacts, ScatterFacts

FOUR = tuple(Column(f"c{place}", "bigint") for place in range(4))
PART = PartFacts("t", None, "SELECT 1", FOUR, FOUR)
SCATTERED = replace(PART, scatter=ScatterFacts((0,), 200))

# The part, its tasks, rows of each, and the beginning of why Spark computes it.
SMALL: dict[str, tuple[PartFacts, int, int, str | None]] = {
    "enough values": (PART, 5, 1_000_000, None),
    "too few values": (PART, 4, 1_000_000, "about 4000000 rows are too few"),
    "few columns of many rows": (replace(PART, read=FOUR[:1]), 19, 1_000_000, "about 19000000 rows are too few"),
    "no columns": (replace(PART, read=()), 20, 1_000_000, None),
    "rows that leave as columns": (SCATTERED, 4, 250_000, None),
    "few of them": (SCATTERED, 4, 249_999, "about 999996 rows are too few"),
    "exchanged rows": (replace(PART, inputs=(FOUR,)), 1, 10_000, None),
    "few exchanged rows": (replace(PART, inputs=(FOUR,)), 1, 9_999, "about 9999 rows are too few"),
    "few rows to hash": (replace(PART, joined_rows=250_000), 8, 1_000_000, None),
    "many rows to hash": (replace(PART, joined_rows=250_001), 8, 1_000_000, "each task would hash 250001 rows"),
}


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_enough_to_do(case: str) -> None:
    part, tasks, rows, why = SMALL[case]
    found = part.why_small(tasks, rows)
    assert found is None if why is None else str(found).startswith(why)


def test_inputs_that_a_task_can_hold() -> None:
    part = replace(PART, inputs=(FOUR,), task_bytes=25)
    assert part.why_memory(100) is None
    assert str(part.why_memory(99)).startswith("a task would hold 25 bytes")


MANY: dict[str, tuple[PartFacts, float, str | None]] = {
    "few rows": (PART, 0.1, None),
    "many rows": (PART, 0.11, "11% of the rows stay"),
    "many rows, and why no more is done to them": (
        replace(PART, above="expression Upper"),
        1.0,
        "expression Upper: 100%",
    ),
    "sums of many groups": (replace(PART, aggregates=True), 1.0, None),
}


@pytest.mark.parametrize("case", MANY, ids=str)
def test_few_rows_that_leave(case: str) -> None:
    part, share, why = MANY[case]
    found = part.why_many(share)
    assert found is None if why is None else str(found).startswith(why)


@pytest.mark.parametrize(
    ("part", "rows", "expected"),
    [(PART, 1e9, False), (SCATTERED, 20_000, True), (SCATTERED, 19_999, False)],
)
def test_rows_that_leave_as_columns(part: PartFacts, rows: float, expected: bool) -> None:
    assert part.leaves_as_columns(rows) is expected


def test_what_java_tells() -> None:
    told = {
        "table": "t",
        "sql": "SELECT 1",
        "read": [],
        "columns": [{"name": "c1", "type": "bigint"}],
        "inputs": [[{"name": "c2", "type": "date"}]],
        "calendar": "CORRECTED",
        "folders": [],
        "aggregates": True,
        "builds": 1,
        "keys": [7],
        "joined_rows": 3,
        "above": None,
    }
    plain = PartFacts.of(told)
    assert (plain.columns, plain.inputs) == ((Column("c1", "bigint"),), ((Column("c2", "date"),),))
    assert (plain.keys, plain.scatter) == ((7,), None)
    assert PartFacts.of(told | {"scatter": {"keys": [0], "subpartitions": 4}}).scatter == ScatterFacts((0,), 4)
    assert PartFacts.of({"table": "t", "declined": "no"}) == PartFacts("t", "no")
