"""Assignment of old key groups to new ones: tables, and brute-force checks of its laws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as h

from penstock.state.assignment import Change, StateAssignment

NUMBERS = h.integers(1, 60)
# old, new: change, classes, sources of new groups 0 and 1, retained fraction
TABLE = [
    (4, 8, Change.SPLIT, 4, ([0], [1]), 1 / 2),
    (4, 12, Change.SPLIT, 4, ([0], [1]), 1 / 3),
    (8, 4, Change.MERGE, 4, ([0, 4], [1, 5]), 1.0),
    (4, 6, Change.REGROUP, 2, ([0, 2], [1, 3]), 1 / 3),
    (4, 3, Change.REGROUP, 1, ([0, 1, 2, 3], [0, 1, 2, 3]), 1 / 3),
    (1, 4, Change.SPLIT, 1, ([0], [0]), 1 / 4),
]


@pytest.mark.parametrize(("old", "new", "change", "classes", "sources", "retained"), TABLE)
def test_table(old: int, new: int, change: Any, classes: int, sources: Any, retained: Any) -> None:
    assignment = StateAssignment(old, new)
    assert (assignment.change, assignment.classes, assignment.retained_fraction) == (change, classes, retained)
    assert (list(assignment.sources(0)), list(assignment.sources(1))) == sources


@given(NUMBERS, NUMBERS, h.integers(0, 2**31))
def test_a_key_is_always_among_the_sources_of_its_new_group(old: Any, new: Any, hashed: Any) -> None:
    assert hashed % old in StateAssignment(old, new).sources(hashed % new)


@given(NUMBERS, NUMBERS)
def test_only_needed_sources_are_read(old: Any, new: Any) -> None:
    assignment = StateAssignment(old, new)
    pairs = {(hashed % new, hashed % old) for hashed in range(old * new)}
    assert pairs == {(group, source) for group in range(new) for source in assignment.sources(group)}


@given(NUMBERS, NUMBERS, h.integers(1, 16))
def test_work_units_write_every_group_once_and_read_what_they_need(old: Any, new: Any, slots: Any) -> None:
    assignment = StateAssignment(old, new)
    units = assignment.work_units(slots)
    assert sorted(group for unit in units for group in unit.writes) == list(range(new))
    for unit in units:
        for group in unit.writes:
            assert list(unit.reads) == list(assignment.sources(group))
    if slots <= assignment.classes:
        assert sorted(group for unit in units for group in unit.reads) == list(range(old)), "every group is read once"
