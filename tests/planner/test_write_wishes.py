"""What the options ask of Spark's own writer, as far as the query does not say it itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.graph import CalcOperator, Operator, OperatorKind, StreamNode
from penstock.planner.write_wishes import WriteWish, write_wish


def node(operator: Operator, parallelism: int | None = None) -> StreamNode:
    return StreamNode(1, operator, "n", "n", parallelism)


def top(name: str, shuffles: bool | None = None) -> Any:
    repartition = None if shuffles is None else SimpleNamespace(shuffles=shuffles, partitions=2)
    return SimpleNamespace(name=name, repartition=repartition)


CALC = node(CalcOperator())
DEALT = node(Operator(OperatorKind.REPARTITION))
SIZE = 1 << 20
OWN = ("as the query says", None, None, False)
BEFORE = "the tasks before the writer"
CASES: dict[str, tuple[Any, Any, int | None, int | None, bool, bool, tuple[str, int | None, int | None, bool]]] = {
    "nothing is asked": (CALC, top("Project"), None, None, False, False, ("", None, None, False)),
    "a number": (CALC, top("Project"), 3, None, False, False, ("3", 3, None, False)),
    "a size": (CALC, top("Project"), None, SIZE, False, False, ("by the size of files", None, SIZE, False)),
    "both": (CALC, None, 3, SIZE, False, False, ("3", 3, None, False)),
    "a number of the query's": (node(CalcOperator(), 8), None, 3, None, False, True, OWN),
    "a coalesce": (CALC, top("Repartition", shuffles=False), 3, None, False, False, OWN),
    "a query that is Spark's": (CALC, top("Query"), None, SIZE, False, False, OWN),
    "an exchange that can be cut": (DEALT, None, 3, None, False, True, ("3", 3, None, True)),
    "an exchange that cannot": (DEALT, None, 3, None, False, False, (BEFORE, None, None, True)),
    "an exchange and a size": (DEALT, None, None, SIZE, False, False, (BEFORE, None, None, True)),
    "an order that can be cut": (CALC, top("Sort"), 3, None, True, True, ("3", 3, None, False)),
    "an order and a size": (CALC, top("Sort"), None, SIZE, True, False, (BEFORE, None, None, False)),
}
"""The last node, its operator, the tasks and the size that are asked for, whether there is an order, and can be given."""


@pytest.mark.parametrize("name", CASES)
def test_wish(name: str) -> None:
    last, operator, parallelism, size, ordered, can_be_given, expected = CASES[name]
    wish = write_wish([last], [operator], parallelism, size, ordered=ordered, can_be_given=can_be_given)
    assert (wish.chosen, wish.parallelism, wish.file_size, wish.keeps_exchange) == expected
    assert bool(wish.reason) == (wish != WriteWish())
