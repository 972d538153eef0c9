"""The rows that the first task has sent: each is claimed once, by the attempts of a single task, and not sent again."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from penstock.connectors.http.rows import FirstRows

CLAIMS: dict[str, tuple[str, list[tuple[int, int, str]], str]] = {
    "each row once": ("ab", [(0, 0, "a"), (0, 0, "a"), (1, 0, "b"), (2, 0, "b")], "ynyn"),
    "equal rows by several tasks": ("aab", [(0, 0, "a"), (1, 0, "a"), (2, 0, "a")], "yyn"),
    "rows that were not sent": ("a", [(0, 0, "b"), (0, 0, "a")], "ny"),
    "a repeated task": (
        "aab",
        [(0, 0, "a"), (0, 0, "b"), (0, 1, "a"), (0, 1, "b"), (0, 1, "a"), (0, 1, "a")],
        "yyyyyn",
    ),
    "another task": ("a", [(0, 0, "a"), (1, 0, "a"), (0, 1, "a"), (1, 1, "a")], "ynyn"),
    "concurrent attempts": ("aa", [(0, 0, "a"), (0, 1, "a"), (0, 1, "a"), (0, 0, "a"), (1, 0, "a")], "yyyyn"),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_each_sent_row_is_claimed_by_a_single_task(case: str) -> None:
    sent, claims, outcomes = CLAIMS[case]
    first = FirstRows()
    first.add(sent)
    claimed: Any = defaultdict(Counter)
    granted = [first.claim(task, claimed[task, attempt], row) for task, attempt, row in claims]
    assert granted == [outcome == "y" for outcome in outcomes]
    assert first.digests == set(sent)
