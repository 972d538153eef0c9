"""Windows with a hot key: when their rows are divided by their order, and why not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.graph import AggregateOperator, Operator, OperatorKind, WindowOperator
from penstock.optimizer.skewed_aggregation import AdaptiveSkewedAggregation
from penstock.optimizer.skewed_window import AdaptiveSkewedWindow
from penstock.testing import RESOURCES, StrategyHarness
from tests.optimizer.skewed_results import written_by

EVEN, HOT, TWO = (100, 100, 100, 100), (100, 3000, 100, 100), (100, 3000, 3000, 100, 100, 100)
STRATEGY = "table.optimizer.skewed-join-optimization.strategy"
RANK = WindowOperator()
LAG = WindowOperator("lag needs all rows of a key in one task")
SUM, SORT = AggregateOperator(None), Operator(OperatorKind.GROUPED_MAP)


def finished(
    sizes: Any, tasks: int | None, cores: int, config: Any = None, window: Any = RANK, after: Any = SUM
) -> StrategyHarness:
    resources = dataclasses.replace(RESOURCES, cores=cores)
    strategies = [AdaptiveSkewedAggregation, AdaptiveSkewedWindow]
    operators = {2: window, 3: after}
    job = StrategyHarness(strategies, "1 #> 2\n2 ~> 3", operators, resources=resources, config=config)
    job.finish(1, written_by(tasks, *sizes))
    return job


@pytest.mark.parametrize(
    ("sizes", "tasks", "cores", "config", "why_not"),
    [
        (HOT, 100, 16, {}, None),
        (HOT, 8, 16, {}, None),
        (HOT, 3, 16, {}, "not worth it with 16 cores and 3 tasks that wrote them"),
        (HOT, 100, 2, {}, "not worth it with 2 cores and 100 tasks that wrote them"),
        (HOT, 100, 2, {STRATEGY: "FORCED"}, None),
        (HOT, 1, 16, {STRATEGY: "FORCED"}, "one task wrote its largest partition"),
        (HOT, None, 16, {}, "it is not known which tasks wrote its largest partition"),
        (TWO, 100, 16, {}, None),
        (TWO, 100, 5, {}, "not worth it with 5 cores"),
        (EVEN, 100, 16, {STRATEGY: "FORCED"}, ""),
        (HOT, 100, 16, {STRATEGY: "NONE"}, ""),
    ],
)
def test_when(sizes: Any, tasks: int | None, cores: int, config: Any, why_not: str | None) -> None:
    job = finished(sizes, tasks, cores, config)
    assert job.edges == ({"1 #> 2 cut", "2 #> 3"} if why_not is None else {"1 #> 2", "2 ~> 3"})
    assert len(job.decisions) == (why_not != "")
    for decision in job.decisions:
        assert decision.nodes == (2,)
        assert (why_not or "partitions divided by the order of the window") in f"{decision.chosen} {decision.reason}"


@pytest.mark.parametrize(
    ("window", "after", "why_not"),
    [
        (LAG, SUM, "lag needs all rows of a key in one task"),
        (RANK, RANK, "n3 after it needs all rows of a key in one task"),
        (RANK, SORT, "n3 after it needs all rows of a key in one task"),
        (RANK, AggregateOperator("first depends on the order of rows"), "n3 after it cannot be merged"),
        (Operator(OperatorKind.WINDOW), SUM, "it needs all rows of a key in one task"),
    ],
)
@pytest.mark.parametrize("strategy", ["AUTO", "FORCED"])
def test_what_needs_a_key_in_one_task(window: Any, after: Any, why_not: str, strategy: str) -> None:
    job = finished(HOT, 100, 16, {STRATEGY: strategy}, window, after)
    assert job.edges == {"1 #> 2", "2 ~> 3"}
    (decision,) = job.decisions
    assert decision.chosen == "not split"
    assert why_not in decision.reason
    assert "the largest of 4 partitions has 2.9 GiB" in decision.reason


def test_asked_again_it_says_nothing_new() -> None:
    job = finished(HOT, 100, 16)
    before = len(job.decisions)
    job.finish(2)
    assert len(job.decisions) == before
