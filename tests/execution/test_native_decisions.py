"""Decisions about the parts that a native engine computes name an option only if the option changes them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.decisions.log import DecisionLog
from penstock.execution.vertex_runner import _record_native


@pytest.mark.parametrize(
    ("declined_reason", "failure", "chosen", "option"),
    [
        (None, None, "DuckDB", "execution.native"),
        ("it reads cached rows", None, "Spark", None),
        (None, "No module named 'duckdb'", "Spark", None),
    ],
    ids=["computed", "declined", "package missing"],
)
def test_the_option_of_a_native_decision(
    declined_reason: str | None, failure: str | None, chosen: str, option: str | None
) -> None:
    node = SimpleNamespace(name="Source: orders")
    context: Any = SimpleNamespace(graph=SimpleNamespace(node=lambda _: node), decisions=DecisionLog(), verify=False)
    part = SimpleNamespace(declined_reason=declined_reason, table="orders")
    rewriter: Any = SimpleNamespace(failure=failure, fragments=[part])
    edge: Any = SimpleNamespace(source_id=1)
    _record_native(context, edge, rewriter, "DuckDB")
    (decision,) = context.decisions.records
    assert (decision.chosen, decision.option) == (chosen, option)
    assert ("Change with" in decision.text) == (option is not None)
