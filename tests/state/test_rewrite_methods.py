"""Choice of the rewrite method of a store."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.assignment import StateAssignment
from penstock.state.rewrite_methods import RewriteMethod, choose_method

OLD_SPARK = "its code does not fit Spark 4.9"
TABLE = [
    (4, 8, True, "unsaferow", None, RewriteMethod.FILES, "sorted bytes of rows are copied"),
    (4, 6, True, "unsaferow", None, RewriteMethod.FILES, "sorted bytes of rows are copied"),
    (4, 8, True, "avro", None, RewriteMethod.ROWS, "encoded as avro"),
    (4, 8, True, "unsaferow", OLD_SPARK, RewriteMethod.ROWS, "split needs no shuffle"),
    (8, 4, True, "unsaferow", OLD_SPARK, RewriteMethod.ROWS, "merge needs no shuffle"),
    (4, 6, True, "unsaferow", OLD_SPARK, RewriteMethod.SHUFFLE, "not a multiple or divisor of 4"),
    (199, 200, True, "unsaferow", None, RewriteMethod.SHUFFLE, "stores open"),
    (4, 8, False, "unsaferow", None, RewriteMethod.FILES, "sorted bytes of rows are copied"),
    (4, 6, False, "unsaferow", OLD_SPARK, RewriteMethod.ROWS, "single key group, which is copied"),
    (199, 200, False, "unsaferow", None, RewriteMethod.FILES, "sorted bytes of rows are copied"),
]


@pytest.mark.parametrize(("old", "new", "keyed", "encoding", "problem", "method", "reason"), TABLE)
def test_methods(old: int, new: int, keyed: bool, encoding: str, problem: Any, method: Any, reason: str) -> None:
    chosen, chosen_reason = choose_method(
        StateAssignment(old, new), is_keyed=keyed, encoding=encoding, files_problem=problem, slots=2
    )
    assert chosen is method
    assert reason in chosen_reason
