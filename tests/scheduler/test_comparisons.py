"""What was foreseen of a vertex is compared with what came."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.decisions import Choice, DecisionKind, DecisionLog, NodeRef, Told, VertexRef
from penstock.estimates import Estimate, Unit
from penstock.execution.vertex_runner import VertexRun
from penstock.graph import CalcOperator, JobVertex, JoinOperator, JoinType, ScanOperator
from penstock.scheduler.comparisons import compare_run
from penstock.spark.exchange import BroadcastResult
from penstock.testing import stream_graph
from tests.planner.drafts import plan
from tests.scheduler.results import written

CHEAP, COSTLY = CalcOperator(is_cheap=True), CalcOperator()
LEAF = plan("LogicalRelation")
VERTEX = JobVertex("v1", "n1 -> n2", (1, 2), (), None, None)
RELATION = BroadcastResult(None, 7, 64 << 20, 300, 2, 2, None)  # type: ignore[arg-type]


def told(unit: Unit, foreseen: float) -> Told:
    return Told("x", estimate=Estimate("x", unit, foreseen))


READING = Choice(DecisionKind.SOURCE_PARALLELISM, VertexRef("v1", "n1", (1, 2)), 4, "", told=told(Unit.ROWS, 100))
FILTER = Choice(DecisionKind.DYNAMIC_FILTER, NodeRef(1, "n1"), "by keys", "", told=told(Unit.FRACTION, 0.1))
ABOVE = Choice(DecisionKind.DYNAMIC_FILTER, NodeRef(2, "n2"), "by keys", "", told=told(Unit.FRACTION, 0.1))
WEAK = Choice(DecisionKind.DYNAMIC_FILTER, NodeRef(2, "n2"), "by keys", "", told=told(Unit.FRACTION, 0.5))
SMALL = Choice(DecisionKind.BROADCAST, NodeRef(3, "Join"), "left", "", told=told(Unit.BYTES, 200))
LARGE = Choice(DecisionKind.BROADCAST, NodeRef(3, "Join"), "right", "", told=told(Unit.BYTES, 500))


def compared(
    *made: Choice,
    result: Any = None,
    arrow: str = "#>",
    above: Any = CHEAP,
    filtered: Any = LEAF,
    read: Any = 40,
) -> list[Estimate]:
    """Return estimates with what came, once a source with 1000 rows has run of which a filter kept 250."""
    log = DecisionLog()
    for choice in made:
        log.record(choice)
    operators = {1: ScanOperator(rows=1000), 2: above, 3: JoinOperator(JoinType.INNER)}
    graph = stream_graph(f"1 -> 2\n2 {arrow} 3\n9 #> 3", operators)
    sources = {1: SimpleNamespace(filtered=filtered)}
    context: Any = SimpleNamespace(
        decisions=log,
        graph=graph,
        plan=SimpleNamespace(sources=sources),
        bridge=None,
        group_of=lambda vertex: vertex.id,
    )
    results: Any = SimpleNamespace(kept=lambda vertex: {1: 250}, scanned=lambda vertex: {1: read} if read else {})
    compare_run(context, VERTEX, VertexRun(written(40) if result is None else result, 4), results)
    return [one.words.estimate for one in log if one.words.estimate is not None]


def came(*made: Choice, **more: Any) -> list[float | None]:
    """Return what came of estimates."""
    return [estimate.came for estimate in compared(*made, **more)]


def told_of(*made: Choice, **more: Any) -> list[str]:
    """Return what is told of estimates."""
    return [str(estimate) for estimate in compared(*made, **more)]


KNOWN = plan("Filter", LEAF)
WITHOUT_NULLS = plan("Filter", LEAF)
object.__setattr__(WITHOUT_NULLS, "only_not_null", True)


@pytest.mark.parametrize(
    ("made", "more", "expected"),
    [
        ((READING,), {}, [40]),
        ((READING,), {"read": None}, [None]),  # its scan does not count
        ((FILTER,), {}, [0.25]),
        ((ABOVE,), {}, [0.25]),
        ((FILTER,), {"above": COSTLY}, [None]),  # it may filter too
        ((FILTER, ABOVE), {}, [0.25, 0.25]),  # each has kept that at least
        ((FILTER, WEAK), {}, [0.25, None]),  # nobody knows which one left rows out
        ((FILTER,), {"filtered": KNOWN}, [0.25]),  # the query's own filter left rows out too
        ((WEAK,), {"filtered": KNOWN}, [None]),
        ((FILTER,), {"filtered": WITHOUT_NULLS}, [0.25]),
        ((SMALL, LARGE), {"result": RELATION, "arrow": "*>"}, [300, None]),  # the rows, not the memory
        ((SMALL, LARGE), {"arrow": "*>"}, [40, None]),  # its broadcast was stopped, and it was written
        ((SMALL,), {}, [None]),  # it is not broadcast
        ((READING, FILTER), {}, [40, 0.25]),
    ],
)
def test_what_came(made: Any, more: Any, expected: Any) -> None:
    assert came(*made, **more) == expected


@pytest.mark.parametrize(
    ("made", "filtered", "expected"),
    [
        ((FILTER,), LEAF, ["10.0% foreseen, 25.0% came (missed: 2.5 times more)"]),
        ((FILTER,), KNOWN, ["10.0% foreseen, at least 25.0% came (missed: 2.5 times more)"]),
        ((FILTER, WEAK), LEAF, ["10.0% foreseen, at least 25.0% came (missed: 2.5 times more)", "50.0% foreseen"]),
    ],
)
def test_what_is_known_of_filters_that_others_stand_beside(made: Any, filtered: Any, expected: Any) -> None:
    assert told_of(*made, filtered=filtered) == expected


def test_a_vertex_whose_last_stage_has_not_run_is_not_compared() -> None:
    log = DecisionLog()
    log.record(READING)
    context: Any = SimpleNamespace(decisions=log)
    compare_run(context, VERTEX, VertexRun(None, None), SimpleNamespace())  # type: ignore[arg-type]
    (decision,) = log
    assert decision.words.estimate is not None
    assert decision.words.estimate.came is None
