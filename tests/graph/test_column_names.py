"""Names of columns are taken from the descriptions of operators."""

from __future__ import annotations

import pytest

from penstock.graph import CalcOperator, JoinOperator, JoinType, StreamNode
from penstock.graph.labels import column_names, with_column_names

NODES = [
    StreamNode(1, CalcOperator(), "Calc", "Project [id#20L AS user#21L, (id#20L % 5) AS team#22L]"),
    StreamNode(2, JoinOperator(JoinType.INNER), "Join", "Join Inner, (none#9 = user#21L)"),
]


def test_names() -> None:
    assert column_names(NODES) == {"20": "id", "21": "user", "22": "team"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HASH(none#21L, none#22L)", "HASH(user, team)"),
        ("HASH((none#20L + 1))", "HASH((id + 1))"),
        ("RANGE(none#9 ASC)", "RANGE(none#9 ASC)"),
        ("BROADCAST", "BROADCAST"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert with_column_names(text, column_names(NODES)) == expected
