"""Whether a part of a plan is worth computing with DuckDB."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.duckdb.part_facts import PartFacts, ScatterFacts
from penstock.duckdb.worker.columns import Column

FOUR = tuple(Column(f"c{index}", "bigint") for index in range(4))
PART = PartFacts("t", None, "SELECT 1", FOUR, FOUR)
SCATTERED = replace(PART, scatter=ScatterFacts((0,), 200))

# The part, its tasks, the rows per task, and the start of the reason why Spark computes it.
SMALL: dict[str, tuple[PartFacts, int, int, str | None]] = {
    "enough values": (PART, 5, 1_000_000, None),
    "too few values": (PART, 4, 1_000_000, "about 4000000 rows are too few"),
    "few columns of many rows": (
        replace(PART, read_columns=FOUR[:1]),
        19,
        1_000_000,
        "about 19000000 rows are too few",
    ),
    "no columns": (replace(PART, read_columns=()), 20, 1_000_000, None),
    "rows that leave as columns": (SCATTERED, 4, 250_000, None),
    "few of them": (SCATTERED, 4, 249_999, "about 999996 rows are too few"),
    "exchanged rows": (replace(PART, inputs=(FOUR,)), 1, 10_000, None),
    "few exchanged rows": (replace(PART, inputs=(FOUR,)), 1, 9_999, "about 9999 rows are too few"),
    "few rows to hash": (replace(PART, joined_rows=250_000), 8, 1_000_000, None),
    "many rows to hash": (replace(PART, joined_rows=250_001), 8, 1_000_000, "each task would hash 250001 rows"),
}


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_too_small_reason(case: str) -> None:
    part, tasks, rows, expected = SMALL[case]
    reason = part.too_small_reason(tasks, rows)
    assert reason is None if expected is None else str(reason).startswith(expected)


def test_memory_reason() -> None:
    part = replace(PART, inputs=(FOUR,), max_task_bytes=25)
    assert part.memory_reason(100) is None
    assert str(part.memory_reason(99)).startswith("a task would hold 25 bytes")


MANY: dict[str, tuple[PartFacts, float, str | None]] = {
    "few rows": (PART, 0.1, None),
    "many rows": (PART, 0.11, "11% of the rows remain"),
    "many rows, and the reason of the operator above_reason": (
        replace(PART, above_reason="expression Upper"),
        1.0,
        "expression Upper: 100%",
    ),
    "sums of many groups": (replace(PART, aggregates=True), 1.0, None),
}


@pytest.mark.parametrize("case", MANY, ids=str)
def test_too_many_rows_reason(case: str) -> None:
    part, share, expected = MANY[case]
    reason = part.too_many_rows_reason(share)
    assert reason is None if expected is None else str(reason).startswith(expected)


@pytest.mark.parametrize(
    ("part", "rows", "expected"),
    [(PART, 1e9, False), (SCATTERED, 20_000, True), (SCATTERED, 19_999, False)],
)
def test_rows_exchanged_as_columns(part: PartFacts, rows: float, expected: bool) -> None:
    assert part.is_exchanged_as_columns(rows) is expected


def test_facts_from_java() -> None:
    facts = {
        "table": "t",
        "sql": "SELECT 1",
        "read_columns": [],
        "columns": [{"name": "c1", "type": "bigint"}],
        "inputs": [[{"name": "c2", "type": "date"}]],
        "rebase_mode": "CORRECTED",
        "partition_columns": [],
        "aggregates": True,
        "build_count": 1,
        "key_set_numbers": [7],
        "joined_rows": 3,
        "above_reason": None,
        "functions": [],
    }
    plain = PartFacts.of(facts)
    assert (plain.columns, plain.inputs) == ((Column("c1", "bigint"),), ((Column("c2", "date"),),))
    assert (plain.key_set_numbers, plain.scatter) == ((7,), None)
    assert PartFacts.of(facts | {"scatter": {"keys": [0], "subpartitions": 4}}).scatter == ScatterFacts((0,), 4)
    assert PartFacts.of({"table": "t", "declined_reason": "no"}) == PartFacts("t", "no")
