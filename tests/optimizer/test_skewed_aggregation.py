"""When partial results with the values of hot groups are merged in chunks, and the reasons why not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.graph import AggregateOperator
from penstock.optimizer.skewed_aggregation import AdaptiveSkewedAggregation
from penstock.testing import RESOURCES, StrategyHarness
from tests.optimizer.skewed_results import written_by

EVEN, HOT = (100, 100, 100, 100), (100, 3000, 100, 100)
STRATEGY = "table.optimizer.skewed-join-optimization.strategy"
PERCENTILE = AggregateOperator("an exact percentile keeps every value", keeps_values=True)


def finished(sizes: Any, tasks: int | None, cores: int, config: Any = None) -> StrategyHarness:
    resources = dataclasses.replace(RESOURCES, cores=cores)
    text = "1 #> 2\n2 ~> 3"
    operators = {2: PERCENTILE, 3: AggregateOperator(None)}
    job = StrategyHarness([AdaptiveSkewedAggregation], text, operators, resources=resources, config=config)
    job.finish(1, written_by(tasks, *sizes))
    return job


@pytest.mark.parametrize(
    ("sizes", "tasks", "cores", "config", "refusal"),
    [
        (HOT, 100, 8, {}, None),
        (HOT, 12, 2, {}, None),
        (HOT, 11, 2, {}, "partial results of 11 tasks for its largest partition, too few for chunks on 2 cores"),
        (HOT, 8, 64, {}, "partial results of 8 tasks for its largest partition, too few for chunks on 64 cores"),
        (HOT, 1, 8, {}, "partial results of 1 task for its largest partition, too few for chunks on 8 cores"),
        (HOT, 1000, 1, {}, "partial results of 1,000 tasks for its largest partition, too few for chunks on 1 core"),
        (HOT, None, 8, {}, "the tasks that wrote its largest partition are unknown"),
        ((900, 3000, 900, 900), 100, 2, {STRATEGY: "FORCED"}, ""),  # not above four times the median
        ((600, 3000, 600, 600), 100, 2, {}, "less than 1.5 times the share of each of 2 cores"),
        ((600, 3000, 600, 600), 100, 2, {STRATEGY: "FORCED"}, None),
        (EVEN, 100, 8, {}, ""),
        (HOT, 100, 8, {STRATEGY: "NONE"}, ""),
    ],
)
def test_when_partial_results_are_merged_in_chunks(
    sizes: Any, tasks: int | None, cores: int, config: Any, refusal: str | None
) -> None:
    job = finished(sizes, tasks, cores, config)
    assert job.edges == ({"1 #> 2 cut", "2 ~> 3"} if refusal is None else {"1 #> 2", "2 ~> 3"})
    assert len(job.decisions) == (refusal != "")
    for decision in job.decisions:
        assert decision.nodes == (2,)
        assert (refusal or "1 of 4 partitions merged in chunks before") in f"{decision.chosen} {decision.reason}"
