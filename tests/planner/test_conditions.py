"""Conditions under which parts of a query may be moved or split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.planner.conditions import unrepeatable_reason
from penstock.spark.plans.nodes import SortFacts
from tests.planner.drafts import plan

FILES = plan("LogicalRelation")
RANDOM = frozenset({"PythonUDF"})


def with_functions(node: Any, *names: str) -> Any:
    return replace(node, functions=frozenset(names))


LOCAL_SORT = replace(plan("Sort", FILES), sort=SortFacts(is_global=False, order=("a",)))


@pytest.mark.parametrize(
    "below",
    [
        FILES,
        plan("Range"),
        plan("Filter", plan("Project", FILES)),
        plan("Join", plan("Project", FILES), plan("LocalRelation")),
        with_functions(plan("Aggregate", plan("Union", FILES, FILES)), "Sum", "Max"),
        plan("MapInArrow", plan("Project", FILES)),
        plan("MapInPandas", LOCAL_SORT),
    ],
    ids=["files", "range", "narrow", "join", "aggregate", "a function over files", "a function over a local sort"],
)
def test_plans_that_are_repeatable(below: Any) -> None:
    assert unrepeatable_reason(below) is None


@pytest.mark.parametrize(
    ("below", "cause"),
    [
        (replace(plan("BatchEvalPython", FILES), nondeterministic=RANDOM), "PythonUDF"),
        (plan("Project", replace(plan("Project", FILES), nondeterministic=frozenset({"Rand"}))), "Rand"),
        (plan("Join", FILES, replace(plan("Project", FILES), nondeterministic=RANDOM)), "PythonUDF"),
        (plan("Project", plan("GlobalLimit", plan("LocalLimit", FILES))), "GlobalLimit"),
        (with_functions(plan("Aggregate", FILES), "Sum", "First"), "First"),
        (plan("Window", FILES), "Window"),
        (plan("MapInArrow", plan("Repartition", FILES)), "MapInArrow"),
        (plan("FlatMapGroupsInPandas", FILES), "FlatMapGroupsInPandas"),
        (plan("InMemoryRelation"), "InMemoryRelation"),
        (plan("LogicalRDD"), "LogicalRDD"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_plans_that_are_not_repeatable(below: Any, cause: str) -> None:
    assert unrepeatable_reason(below) == f"{cause} may return other rows if Spark recomputes lost shuffle files"
