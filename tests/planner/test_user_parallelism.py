"""Sink options of the user for Spark's own writer, unless the query overrides them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.graph import CalcOperator, Operator, OperatorKind, StreamNode
from penstock.planner.sinks import UserParallelism, choose_user_parallelism


def node(operator: Operator, parallelism: int | None = None) -> StreamNode:
    return StreamNode(1, operator, "n", "n", parallelism)


def top(name: str, shuffles: bool | None = None) -> Any:
    repartition = None if shuffles is None else SimpleNamespace(shuffles=shuffles, partitions=2)
    return SimpleNamespace(name=name, repartition=repartition)


CALC = node(CalcOperator())
REPARTITIONED = node(Operator(OperatorKind.REPARTITION))
SIZE = 1 << 20
OWN = ("as the query says", None, None, False)
BEFORE = "the tasks before the writer"
CASES: dict[str, tuple[Any, Any, int | None, int | None, bool, bool, tuple[str, int | None, int | None, bool]]] = {
    "no option": (CALC, top("Project"), None, None, False, False, ("", None, None, False)),
    "a number": (CALC, top("Project"), 3, None, False, False, ("3", 3, None, False)),
    "a size": (CALC, top("Project"), None, SIZE, False, False, ("by the size of files", None, SIZE, False)),
    "both": (CALC, None, 3, SIZE, False, False, ("3", 3, None, False)),
    "a number set by the query": (node(CalcOperator(), 8), None, 3, None, False, True, OWN),
    "a coalesce": (CALC, top("Repartition", shuffles=False), 3, None, False, False, OWN),
    "a query that Spark runs": (CALC, top("Query"), None, SIZE, False, False, OWN),
    "an exchange that accepts the number": (REPARTITIONED, None, 3, None, False, True, ("3", 3, None, True)),
    "an exchange that does not": (REPARTITIONED, None, 3, None, False, False, (BEFORE, None, None, True)),
    "an exchange and a size": (REPARTITIONED, None, None, SIZE, False, False, (BEFORE, None, None, True)),
    "an order that accepts the number": (CALC, top("Sort"), 3, None, True, True, ("3", 3, None, False)),
    "an order and a size": (CALC, top("Sort"), None, SIZE, True, False, (BEFORE, None, None, False)),
}
"""The last node and operator, the requested tasks and size, whether rows are ordered and tasks accepted; the result."""


@pytest.mark.parametrize("name", CASES)
def test_choose_user_parallelism(name: str) -> None:
    last, operator, parallelism, size, is_ordered, accepts_parallelism, expected = CASES[name]
    setting = choose_user_parallelism(
        [last], [operator], parallelism, size, is_ordered=is_ordered, accepts_parallelism=accepts_parallelism
    )
    assert (setting.chosen, setting.parallelism, setting.file_size, setting.keeps_exchange) == expected
    assert bool(setting.reason) == (setting != UserParallelism())
