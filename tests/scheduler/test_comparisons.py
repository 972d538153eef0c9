"""Estimates for a vertex are compared with its actual figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, NodeRef, VertexRef
from penstock.execution.vertex_runner import VertexRun
from penstock.graph import CalcOperator, JobVertex, JoinOperator, JoinType, ScanOperator
from penstock.scheduler.vertex_execution import compare_run
from penstock.spark.run.exchange import BroadcastResult
from penstock.testing import stream_graph
from tests.planner.drafts import plan
from tests.scheduler.results import written

CHEAP, COSTLY = CalcOperator(is_cheap=True), CalcOperator()
LEAF = plan("LogicalRelation")
VERTEX = JobVertex("v1", "n1 -> n2", (1, 2), (), None, None)
RELATION = BroadcastResult(None, 7, 64 << 20, 300, 2, 2, None)  # type: ignore[arg-type]


def explanation(unit: Unit, estimated: float) -> Explanation:
    return Explanation("x", estimate=Estimate("x", unit, estimated))


READING = Choice(
    DecisionKind.SOURCE_PARALLELISM, VertexRef("v1", "n1", (1, 2)), 4, "", explanation=explanation(Unit.ROWS, 100)
)
FILTER = Choice(
    DecisionKind.DYNAMIC_FILTER, NodeRef(1, "n1"), "by keys", "", explanation=explanation(Unit.FRACTION, 0.1)
)
ABOVE = Choice(
    DecisionKind.DYNAMIC_FILTER, NodeRef(2, "n2"), "by keys", "", explanation=explanation(Unit.FRACTION, 0.1)
)
WEAK = Choice(DecisionKind.DYNAMIC_FILTER, NodeRef(2, "n2"), "by keys", "", explanation=explanation(Unit.FRACTION, 0.5))
SMALL = Choice(DecisionKind.BROADCAST, NodeRef(3, "Join"), "left", "", explanation=explanation(Unit.BYTES, 200))
LARGE = Choice(DecisionKind.BROADCAST, NodeRef(3, "Join"), "right", "", explanation=explanation(Unit.BYTES, 500))


def compared(
    *choices: Choice,
    result: Any = None,
    arrow: str = "#>",
    above: Any = CHEAP,
    filtered: Any = LEAF,
    read: Any = 40,
) -> list[Estimate]:
    """Return the estimates after a run: a source with 1000 rows, of which a filter retained 250."""
    log = DecisionLog()
    for choice in choices:
        log.record(choice)
    operators = {1: ScanOperator(rows=1000), 2: above, 3: JoinOperator(JoinType.INNER)}
    graph = stream_graph(f"1 -> 2\n2 {arrow} 3\n9 #> 3", operators)
    sources = {1: SimpleNamespace(filtered=filtered)}
    context: Any = SimpleNamespace(
        decisions=log,
        graph=graph,
        plan=SimpleNamespace(sources=sources),
        bridge=None,
        spark_job_group=lambda vertex: vertex.id,
    )
    results: Any = SimpleNamespace(
        retained_rows=lambda vertex: {1: 250}, scanned_rows=lambda vertex: {1: read} if read else {}
    )
    compare_run(context, VERTEX, VertexRun(written(40) if result is None else result, 4), results)
    return [decision.displayed.estimate for decision in log if decision.displayed.estimate is not None]


def actual_values(*choices: Choice, **facts: Any) -> list[float | None]:
    return [estimate.actual for estimate in compared(*choices, **facts)]


FILTERED = plan("Filter", LEAF)
WITHOUT_NULLS = plan("Filter", LEAF)
object.__setattr__(WITHOUT_NULLS, "filters_only_nulls", True)


@pytest.mark.parametrize(
    ("choices", "facts", "expected"),
    [
        ((READING,), {}, [40]),
        ((READING,), {"read": None}, [None]),  # its scan does not count rows
        ((FILTER,), {}, [0.25]),
        ((ABOVE,), {}, [0.25]),
        ((FILTER,), {"above": COSTLY}, [None]),  # the operator above may filter, too
        ((FILTER, ABOVE), {}, [0.25, 0.25]),  # a lower bound for each filter
        ((FILTER, WEAK), {}, [0.25, None]),  # it is unknown which filter removed the rows
        ((FILTER,), {"filtered": FILTERED}, [0.25]),  # the query's own filter removed rows, too
        ((WEAK,), {"filtered": FILTERED}, [None]),
        ((FILTER,), {"filtered": WITHOUT_NULLS}, [0.25]),
        ((SMALL, LARGE), {"result": RELATION, "arrow": "*>"}, [300, None]),  # the bytes of the rows, not the memory
        ((SMALL, LARGE), {"arrow": "*>"}, [40, None]),  # its broadcast was stopped, and it was written
        ((SMALL,), {}, [None]),  # it is not broadcast
        ((READING, FILTER), {}, [40, 0.25]),
    ],
)
def test_actual_values(choices: Any, facts: Any, expected: Any) -> None:
    assert actual_values(*choices, **facts) == expected


@pytest.mark.parametrize(
    ("choices", "filtered", "expected"),
    [
        ((FILTER,), LEAF, ["10.0% estimated, 25.0% actual (missed: 2.5 times more)"]),
        ((FILTER,), FILTERED, ["10.0% estimated, at least 25.0% actual (missed: 2.5 times more)"]),
        ((FILTER, WEAK), LEAF, ["10.0% estimated, at least 25.0% actual (missed: 2.5 times more)", "50.0% estimated"]),
    ],
)
def test_several_filters_of_a_source_have_lower_bounds(choices: Any, filtered: Any, expected: Any) -> None:
    assert [str(estimate) for estimate in compared(*choices, filtered=filtered)] == expected


def test_a_vertex_whose_last_stage_has_not_run_is_not_compared() -> None:
    log = DecisionLog()
    log.record(READING)
    context: Any = SimpleNamespace(decisions=log)
    compare_run(context, VERTEX, VertexRun(None, None), SimpleNamespace())  # type: ignore[arg-type]
    (decision,) = log
    assert decision.displayed.estimate is not None
    assert decision.displayed.estimate.actual is None
