"""The way a store is rewritten, as a table."""

from __future__ import annotations

import pytest

from penstock.state.assignment import StateAssignment
from penstock.state.ways import Way, choose_way

OLD_SPARK = "its code does not fit Spark 4.9"
TABLE = [
    (4, 8, True, "unsaferow", None, Way.FILES, "moved whole"),
    (4, 6, True, "unsaferow", None, Way.FILES, "moved whole"),
    (4, 8, True, "avro", None, Way.ROWS, "encoded as avro"),
    (4, 8, True, "unsaferow", OLD_SPARK, Way.ROWS, "split needs no shuffle"),
    (8, 4, True, "unsaferow", OLD_SPARK, Way.ROWS, "merge needs no shuffle"),
    (4, 6, True, "unsaferow", OLD_SPARK, Way.SHUFFLE, "no multiple or divisor of 4"),
    (199, 200, True, "unsaferow", None, Way.SHUFFLE, "stores open"),
    (4, 8, False, "unsaferow", None, Way.FILES, "moved whole"),
    (4, 6, False, "unsaferow", OLD_SPARK, Way.ROWS, "copied as key group 0"),
    (199, 200, False, "unsaferow", None, Way.FILES, "moved whole"),
]


@pytest.mark.parametrize(("old", "new", "keyed", "encoding", "problem", "way", "reason"), TABLE)
def test_ways(old, new, keyed, encoding, problem, way, reason):
    found = choose_way(StateAssignment(old, new), keyed=keyed, encoding=encoding, files_problem=problem, slots=2)
    assert found[0] is way
    assert reason in found[1]
