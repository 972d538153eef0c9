"""When the rows of hot keys of a window are split by its order, and the reasons why not."""

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
WHOLE_KEY = "needs all rows of a key in one task"
RANK = WindowOperator()
LAG = WindowOperator(f"lag {WHOLE_KEY}")
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
    ("sizes", "tasks", "cores", "config", "refusal"),
    [
        (HOT, 100, 16, {}, None),
        (HOT, 8, 16, {}, None),
        (HOT, 3, 16, {}, "not worth it with 16 cores and 3 tasks that wrote them"),
        (HOT, 100, 2, {}, "not worth it with 2 cores and 100 tasks that wrote them"),
        (HOT, 100, 2, {STRATEGY: "FORCED"}, None),
        (HOT, 1, 16, {STRATEGY: "FORCED"}, "a single task wrote its largest partition"),
        (HOT, None, 16, {}, "the tasks that wrote its largest partition are unknown"),
        (TWO, 100, 16, {}, None),
        (TWO, 100, 5, {}, "not worth it with 5 cores"),
        (EVEN, 100, 16, {STRATEGY: "FORCED"}, ""),
        (HOT, 100, 16, {STRATEGY: "NONE"}, ""),
    ],
)
def test_when_rows_are_split(sizes: Any, tasks: int | None, cores: int, config: Any, refusal: str | None) -> None:
    job = finished(sizes, tasks, cores, config)
    assert job.edges == ({"1 #> 2 cut", "2 #> 3"} if refusal is None else {"1 #> 2", "2 ~> 3"})
    assert len(job.decisions) == (refusal != "")
    for decision in job.decisions:
        assert decision.nodes == (2,)
        assert (refusal or "partitions divided by the order of the window") in f"{decision.chosen} {decision.reason}"


@pytest.mark.parametrize(
    ("window", "after", "refusal"),
    [
        (LAG, SUM, f"lag {WHOLE_KEY}"),
        (RANK, RANK, f"n3 after it {WHOLE_KEY}"),
        (RANK, SORT, f"n3 after it {WHOLE_KEY}"),
        (RANK, AggregateOperator("first depends on the order of rows"), "n3 after it cannot be merged"),
        (Operator(OperatorKind.WINDOW), SUM, f"it {WHOLE_KEY}"),
    ],
)
@pytest.mark.parametrize("strategy", ["AUTO", "FORCED"])
def test_operators_that_need_all_rows_of_a_key_prevent_a_split(
    window: Any, after: Any, refusal: str, strategy: str
) -> None:
    job = finished(HOT, 100, 16, {STRATEGY: strategy}, window, after)
    assert job.edges == {"1 #> 2", "2 ~> 3"}
    (decision,) = job.decisions
    assert decision.chosen == "not split"
    assert refusal in decision.reason
    assert "the largest of 4 partitions has 2.9 GiB" in decision.reason


def test_a_later_call_records_no_other_decision() -> None:
    job = finished(HOT, 100, 16)
    before = len(job.decisions)
    job.finish(2)
    assert len(job.decisions) == before
