"""Rows that were sent first: each is left out once of the rest, by whichever attempts of one task meet it."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from penstock.connectors.http.first_rows import FirstRows

CLAIMS: dict[str, tuple[str, list[tuple[int, int, str]], str]] = {
    "each once": ("ab", [(0, 0, "a"), (0, 0, "a"), (1, 0, "b"), (2, 0, "b")], "ynyn"),
    "equal ones by several tasks": ("aab", [(0, 0, "a"), (1, 0, "a"), (2, 0, "a")], "yyn"),
    "others": ("a", [(0, 0, "b"), (0, 0, "a")], "ny"),
    "a repeated task": (
        "aab",
        [(0, 0, "a"), (0, 0, "b"), (0, 1, "a"), (0, 1, "b"), (0, 1, "a"), (0, 1, "a")],
        "yyyyyn",
    ),
    "another task does not get them": ("a", [(0, 0, "a"), (1, 0, "a"), (0, 1, "a"), (1, 1, "a")], "ynyn"),
    "attempts at once": ("aa", [(0, 0, "a"), (0, 1, "a"), (0, 1, "a"), (0, 0, "a"), (1, 0, "a")], "yyyyn"),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_claims(case: str) -> None:
    sent, asked, answers = CLAIMS[case]
    first = FirstRows()
    first.add(sent)
    claimed: Any = defaultdict(Counter)
    found = [first.claim(task, claimed[task, attempt], row) for task, attempt, row in asked]
    assert found == [answer == "y" for answer in answers]
    assert first.digests == set(sent)
