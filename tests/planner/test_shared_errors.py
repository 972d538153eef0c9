"""The readings of shared parts that might change the errors of queries."""

from __future__ import annotations

import pytest

from penstock.planner.shared_parts import Reading, unsafe_readings

SAFE, CAN_FAIL = {"part_can_fail": False}, {"part_can_fail": True}
SOME, WHOLE, RISKY = {"may_skip_rows": True}, {"reads_all": True}, {"condition_can_fail": True}
# how several queries read part 7, and the indexes of the unsafe readings
CASES: dict[str, tuple[list[dict[str, bool]], list[int]]] = {
    "nothing can fail": ([SAFE | SOME, SAFE | SOME], []),
    "all remove rows": ([CAN_FAIL | SOME, CAN_FAIL | SOME], [0, 1]),
    "a query reads all rows": ([CAN_FAIL | SOME, CAN_FAIL | WHOLE, CAN_FAIL | SOME], []),
    "no query removes rows": ([CAN_FAIL, CAN_FAIL], []),
    "a query removes rows, and the other may not read all": ([CAN_FAIL | SOME, CAN_FAIL], [0]),
    "a condition that can fail": ([SAFE | SOME | RISKY, SAFE | WHOLE], [0]),
    "a condition that can fail, and a query that reads all": ([CAN_FAIL | SOME | RISKY, CAN_FAIL | WHOLE], [0]),
}


@pytest.mark.parametrize("name", CASES)
def test_unsafe_readings(name: str) -> None:
    facts, expected = CASES[name]
    readings = [Reading(index, 7, **flags) for index, flags in enumerate(facts)]
    assert [reading.reader for reading in unsafe_readings(readings)] == expected


def test_a_query_that_reads_all_of_another_part_does_not_help() -> None:
    some, other = Reading(0, 7, **CAN_FAIL, **SOME), Reading(1, 8, **CAN_FAIL, **WHOLE)
    assert unsafe_readings([some, other]) == [some]
