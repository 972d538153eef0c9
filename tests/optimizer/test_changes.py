"""A change of the graph and its decision are atomic: both are recorded, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions.log import DecisionKind
from penstock.events import ChangeRefused, DecisionRecorded, DecisionSettled, GraphChanged
from penstock.graph import StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.partitioner import FORWARD, REBALANCE, ForwardForUnspecifiedPartitioner
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.testing import StrategyHarness, measured

SPREAD = StreamEdgeUpdateRequest("2-3", REBALANCE)
WIDER = StreamNodeUpdateRequest(3, max_parallelism=7)
TOO_LATE = StreamNodeUpdateRequest(1, parallelism=3)


def job_requesting(*requests: Any, raises: bool = False) -> Any:
    """Return a job with a strategy that requests changes once."""

    class Requesting(StreamGraphOptimizationStrategy):
        is_done = False

        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            if self.is_done:
                return False
            self.is_done = True
            node = context.stream_graph.node(3)
            changed = context.change(requests, DecisionKind.STRATEGY, node, "so", "it is better", part=0.5)
            if raises:
                raise RuntimeError("no luck")
            return changed

    return StrategyHarness([Requesting], "1 #> 2\n2 #> 3", {}, skips=raises)


def test_a_decision_changes_an_edge_and_a_node() -> None:
    job = job_requesting(SPREAD, WIDER)
    before = job.graph
    job.finish(1, measured(1))
    recorded, changed = job.events
    (decision,) = job.decisions
    assert recorded == DecisionRecorded(decision)
    assert (str(decision.subject), decision.chosen, dict(decision.figures)) == ("3 n3", "so", {"part": 0.5})
    assert isinstance(changed, GraphChanged)
    assert changed.change.decision == decision
    assert changed.change.requests == (SPREAD, WIDER)
    assert changed.change.edges == ((before.edge("2-3"), job.graph.edge("2-3")),)
    assert changed.change.nodes == ((before.node(3), job.graph.node(3)),)
    assert (job.graph.edge("2-3").partitioner, job.graph.node(3).max_parallelism) == (REBALANCE, 7)


@pytest.mark.parametrize("requests", [(SPREAD, TOO_LATE), (TOO_LATE, SPREAD), (WIDER, TOO_LATE), (TOO_LATE,)])
def test_a_refused_change_records_no_decision(requests: Any) -> None:
    job = job_requesting(*requests)
    before = job.graph
    job.finish(1, measured(1))
    assert job.decisions == []
    assert job.graph is before
    (event,) = job.events
    assert isinstance(event, ChangeRefused)
    assert event.refused.requests == requests
    assert (event.refused.reason, event.refused.detail) == ("the step has started already", "n1 is frozen")
    assert str(event.refused.choice) == "n3: so, as it is better"


def test_a_change_holds_the_request_and_the_resulting_partitioner() -> None:
    """The requested partitioner may be resolved to another one that fits both ends of the edge."""
    requested = ForwardForUnspecifiedPartitioner()
    job = job_requesting(StreamEdgeUpdateRequest("2-3", requested))
    job.finish(1, measured(1))
    change = job.events[-1].change
    assert [(str(old.partitioner), str(new.partitioner)) for old, new in change.edges] == [("HASH(k)", "FORWARD")]
    assert change.requests[0].partitioner == requested


def test_changes_of_a_strategy_that_raises_are_rolled_back_and_recorded() -> None:
    job = job_requesting(SPREAD, raises=True)
    before = job.graph
    job.finish(1, measured(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}
    first, skipped = job.decisions
    reason = "Requesting was skipped: it raised RuntimeError: no luck"
    assert first.outcome == {"instead": "undone", "because": reason}
    assert (str(skipped.subject), skipped.chosen) == ("Requesting", "skipped")
    kinds = [DecisionRecorded, GraphChanged, DecisionRecorded, DecisionSettled, GraphChanged]
    assert list(map(type, job.events)) == kinds
    undone = job.events[-1].change
    assert undone.decision == skipped
    assert [(old.partitioner, new) for old, new in undone.edges] == [(REBALANCE, before.edge("2-3"))]


@pytest.mark.parametrize("by_change", [True, False])
def test_a_request_without_an_effect_changes_nothing(by_change: bool) -> None:
    """Otherwise a strategy that returns the result of its request would be called forever."""

    class Idle(StreamGraphOptimizationStrategy):
        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            node = context.stream_graph.node(3)
            same = StreamNodeUpdateRequest(3, operator=node.operator)
            if by_change:
                return context.change([same], DecisionKind.STRATEGY, node, "so", "it is so")
            return context.modify_stream_node([same])

    job = StrategyHarness([Idle], "1 #> 2\n2 #> 3", {})
    job.finish(1, measured(1))
    assert (job.events, job.decisions) == ([], [])


def test_a_refusal_is_recorded_again_after_the_graph_has_changed() -> None:
    class Insisting(StreamGraphOptimizationStrategy):
        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            return context.change([TOO_LATE], DecisionKind.STRATEGY, context.stream_graph.node(1), "so", "it is better")

    class Other(Insisting):
        calls = 0

        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            super().on_operators_finished(finished, context)
            self.calls += 1
            return self.calls == 2 and context.modify_stream_edge([SPREAD])

    job = StrategyHarness([Insisting, Other], "1 #> 2\n2 #> 3", {})
    for node, kinds in ((1, [ChangeRefused] * 2), (2, [ChangeRefused] * 2 + [GraphChanged] + [ChangeRefused] * 2)):
        job.finish(node, measured(1))
        assert list(map(type, job.events)) == kinds


def test_a_change_without_a_decision() -> None:
    class Silent(StreamGraphOptimizationStrategy):
        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            return not context.stream_graph.edge("2-3").is_forward and context.modify_stream_edge(
                [StreamEdgeUpdateRequest("2-3", FORWARD)]
            )

    job = StrategyHarness([Silent], "1 #> 2\n2 #> 3", {})
    job.finish(1, measured(1))
    (event,) = job.events
    assert (event.change.decision, job.decisions) == (None, [])
