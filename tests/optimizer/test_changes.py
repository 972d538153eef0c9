"""A change of the graph and the decision to make it are one: both are there, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.decisions import DecisionKind
from penstock.events import ChangeRefused, DecisionMade, DecisionSettled, GraphChanged
from penstock.graph import StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.partitioner import FORWARD, REBALANCE, ForwardForUnspecifiedPartitioner
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.testing import StrategyHarness, measured

SPREAD = StreamEdgeUpdateRequest("2-3", REBALANCE)
WIDER = StreamNodeUpdateRequest(3, max_parallelism=7)
TOO_LATE = StreamNodeUpdateRequest(1, parallelism=3)


def asking(*requests: Any, raises: bool = False) -> Any:
    """Return a strategy that asks for changes once."""

    class Asking(StreamGraphOptimizationStrategy):
        asked = False

        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            if self.asked:
                return False
            self.asked = True
            node = context.stream_graph.node(3)
            changed = context.change(requests, DecisionKind.STRATEGY, node, "so", "it is better", part=0.5)
            if raises:
                raise RuntimeError("no luck")
            return changed

    return StrategyHarness([Asking], "1 #> 2\n2 #> 3", {}, skips=raises)


def test_an_edge_and_a_node_are_changed_by_one_decision() -> None:
    job = asking(SPREAD, WIDER)
    before = job.graph
    job.finish(1, measured(1))
    made, changed = job.events
    (decision,) = job.decisions
    assert made == DecisionMade(decision)
    assert (str(decision.subject), decision.chosen, dict(decision.figures)) == ("3 n3", "so", {"part": 0.5})
    assert isinstance(changed, GraphChanged)
    assert changed.change.decision == decision
    assert changed.change.asked == (SPREAD, WIDER)
    assert changed.change.edges == ((before.edge("2-3"), job.graph.edge("2-3")),)
    assert changed.change.nodes == ((before.node(3), job.graph.node(3)),)
    assert (job.graph.edge("2-3").partitioner, job.graph.node(3).max_parallelism) == (REBALANCE, 7)


@pytest.mark.parametrize("requests", [(SPREAD, TOO_LATE), (TOO_LATE, SPREAD), (WIDER, TOO_LATE), (TOO_LATE,)])
def test_what_is_refused_changes_and_decides_nothing(requests: Any) -> None:
    job = asking(*requests)
    before = job.graph
    job.finish(1, measured(1))
    assert job.decisions == []
    assert job.graph is before
    (event,) = job.events
    assert isinstance(event, ChangeRefused)
    assert event.refused.asked == requests
    assert (event.refused.because, event.refused.detail) == ("the step has started already", "n1 is frozen")
    assert str(event.refused.choice) == "n3: so, as it is better"


def test_what_was_asked_for_and_what_came_of_it() -> None:
    """What fits the ends of an edge may be another thing than what was asked for."""
    wanted = ForwardForUnspecifiedPartitioner()
    job = asking(StreamEdgeUpdateRequest("2-3", wanted))
    job.finish(1, measured(1))
    change = job.events[-1].change
    assert [(str(old.partitioner), str(new.partitioner)) for old, new in change.edges] == [("HASH(k)", "FORWARD")]
    assert change.asked[0].partitioner == wanted


def test_what_a_strategy_changed_before_it_raised_is_undone_and_said_so() -> None:
    job = asking(SPREAD, raises=True)
    before = job.graph
    job.finish(1, measured(1))
    assert job.edges == {"1 #> 2", "2 #> 3"}
    first, skipped = job.decisions
    why = "Asking was skipped: it raised RuntimeError: no luck"
    assert first.outcome == {"instead": "undone", "because": why}
    assert (str(skipped.subject), skipped.chosen) == ("Asking", "skipped")
    kinds = [DecisionMade, GraphChanged, DecisionMade, DecisionSettled, GraphChanged]
    assert list(map(type, job.events)) == kinds
    undone = job.events[-1].change
    assert undone.decision == skipped
    assert [(old.partitioner, new) for old, new in undone.edges] == [(REBALANCE, before.edge("2-3"))]


@pytest.mark.parametrize("by_change", [True, False])
def test_a_request_that_changes_nothing_is_no_change(by_change: bool) -> None:
    """A strategy that returns what it is told would otherwise be called again for ever."""

    class Content(StreamGraphOptimizationStrategy):
        def on_operators_finished(self, finished: Any, context: Any) -> Any:
            node = context.stream_graph.node(3)
            same = StreamNodeUpdateRequest(3, operator=node.operator)
            if by_change:
                return context.change([same], DecisionKind.STRATEGY, node, "so", "it is so")
            return context.modify_stream_node([same])

    job = StrategyHarness([Content], "1 #> 2\n2 #> 3", {})
    job.finish(1, measured(1))
    assert (job.events, job.decisions) == ([], [])


def test_a_refusal_is_told_again_once_the_graph_has_changed() -> None:
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
