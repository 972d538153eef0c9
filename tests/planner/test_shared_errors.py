"""Which readings of shared parts would raise other errors, from tables."""

from __future__ import annotations

import pytest

from penstock.planner.shared_errors import Reading, with_other_errors

SAFE, CAN_FAIL = {"part_can_fail": False}, {"part_can_fail": True}
SOME, WHOLE, RISKY = {"leaves_out_rows": True}, {"reads_all": True}, {"condition_can_fail": True}
# how several queries read part 7, the places of those with other errors
CASES: dict[str, tuple[list[dict[str, bool]], list[int]]] = {
    "nothing can fail": ([SAFE | SOME, SAFE | SOME], []),
    "all leave out rows": ([CAN_FAIL | SOME, CAN_FAIL | SOME], [0, 1]),
    "one reads all": ([CAN_FAIL | SOME, CAN_FAIL | WHOLE, CAN_FAIL | SOME], []),
    "nobody leaves out rows": ([CAN_FAIL, CAN_FAIL], []),
    "one leaves out rows, and the other is not known to read all": ([CAN_FAIL | SOME, CAN_FAIL], [0]),
    "a condition that can fail": ([SAFE | SOME | RISKY, SAFE | WHOLE], [0]),
    "such beside one that reads all": ([CAN_FAIL | SOME | RISKY, CAN_FAIL | WHOLE], [0]),
}


@pytest.mark.parametrize("name", CASES)
def test_with_other_errors(name: str) -> None:
    facts, expected = CASES[name]
    readings = [Reading(place, 7, **one) for place, one in enumerate(facts)]
    assert [one.reader for one in with_other_errors(readings)] == expected


def test_only_who_reads_the_same_part_helps() -> None:
    some, other = Reading(0, 7, **CAN_FAIL, **SOME), Reading(1, 8, **CAN_FAIL, **WHOLE)
    assert with_other_errors([some, other]) == [some]
