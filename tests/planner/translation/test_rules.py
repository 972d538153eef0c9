"""The translation rules of operators."""

from __future__ import annotations

import pytest

from penstock.planner.translation import joins, keyed, narrow, repartitions
from penstock.planner.translation.translator import CHEAP, KEYED, NARROW, RULES, translates

EXPECTED = {
    "Project": narrow.translate_calc,
    "MapInArrow": narrow.translate_calc,
    "Union": narrow.translate_union,
    "Aggregate": keyed.translate_keyed,
    "Window": keyed.translate_keyed,
    "Sort": keyed.translate_sort,
    "Join": joins.translate_join,
    "GlobalLimit": keyed.translate_limit,
    "Repartition": repartitions.translate_repartition,
    "RepartitionByExpression": repartitions.translate_repartition_by,
    "RebalancePartitions": repartitions.translate_rebalance,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_rules(name: str) -> None:
    assert RULES[name] is EXPECTED[name]


@pytest.mark.parametrize("name", ["CollectMetrics", "Intersect", "join", ""])
def test_unknown_operators_have_no_rule(name: str) -> None:
    assert name not in RULES


def test_an_operator_cannot_have_two_rules() -> None:
    with pytest.raises(ValueError, match="Join has two rules"):
        translates("Join")(joins.translate_join)
    assert RULES["Join"] is joins.translate_join


def test_families_do_not_overlap() -> None:
    assert CHEAP <= NARROW
    assert NARROW.isdisjoint(KEYED)
    assert RULES.keys() >= NARROW | KEYED.keys()
