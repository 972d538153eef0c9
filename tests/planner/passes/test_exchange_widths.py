"""Exchanges with a width set by the user, and exchanges that must have the same width."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.log import NameRef, NodeRef
from penstock.planner.draft import DraftChoice, build_job_plan
from tests.planner.drafts import draft

TEXT = "1 #> 2\n2 -> 3\n1 #> 4"


@pytest.mark.parametrize(
    ("parallelism", "widths"),
    [({}, {}), ({2: 7}, {1: 7}), ({3: 7}, {1: 7}), ({4: 5}, {2: 5}), ({2: 7, 4: 5}, {1: 7, 2: 5})],
)
def test_user_widths(parallelism: Any, widths: Any) -> None:
    assert build_job_plan(draft(TEXT, parallelism=parallelism), "x").user_subpartitions == widths


def test_decisions_have_the_final_names_of_nodes() -> None:
    noted = draft(TEXT)
    noted.choices.extend([DraftChoice(2, "right", "it is small"), DraftChoice("both", "run once", "read twice")])
    choices = build_job_plan(noted, "x").choices
    assert [(choice.subject, choice.chosen, choice.reason) for choice in choices] == [
        (NodeRef(2, "n2"), "right", "it is small"),
        (NameRef("both"), "run once", "read twice"),
    ]


@pytest.mark.parametrize(
    ("signatures", "parallelism", "same"),
    [
        ({"1-2": "hash[0]", "1-4": "hash[1]"}, {}, True),  # a node writes both
        ({"1-2": "hash[0]"}, {}, False),
        ({"1-2": "hash[0]", "1-4": "hash[1]"}, {4: 5}, False),
    ],
)
def test_exchanges_that_a_node_writes_together_have_the_same_width(
    signatures: dict[str, Any], parallelism: Any, same: bool
) -> None:
    plan = build_job_plan(draft(TEXT, signatures=signatures, parallelism=parallelism), "x")
    assert (plan.family(1) == plan.family(2)) is same
