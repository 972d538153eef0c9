"""Tests of the strategy on simulated jobs, without Spark."""

from __future__ import annotations

import pytest
from rows_per_task import RowsPerTask

from penstock.decisions.log import DecisionKind
from penstock.graph import JoinOperator, JoinType
from penstock.testing import StrategyHarness, measured


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (25_000, 25), (None, None)],
)
def test_the_number_of_rows_limits_the_tasks(rows: int | None, expected: int | None) -> None:
    job = StrategyHarness([RowsPerTask(1_000)], "1 #> 2\n2 -> 3")
    job.finish(1, measured(500, rows=rows))
    assert job.graph.node(2).max_parallelism == expected


def test_the_reason_is_recorded() -> None:
    job = StrategyHarness([RowsPerTask(1_000)], "1 #> 2")
    job.finish(1, measured(500, rows=2_500))
    assert job.chosen(DecisionKind.VERTEX_PARALLELISM) == ["3"]
    (decision,) = job.decisions
    assert decision.reason == "the input has 2500 rows, and a task is worth 1000 rows"
    assert decision.figures == {"rows": 2_500}


def test_joins_are_not_limited() -> None:
    job = StrategyHarness([RowsPerTask(1_000)], "1 #> 3\n2 #> 3", {3: JoinOperator(JoinType.INNER)})
    job.finish(1, measured(1, rows=10))
    job.finish(2, measured(1, rows=10))
    assert job.graph.node(3).max_parallelism is None
    assert job.decisions == []
