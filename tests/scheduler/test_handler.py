"""Changes of a job's graphs when its vertices finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from penstock.config import Configuration
from penstock.decisions.log import DecisionLog
from penstock.errors import GraphError
from penstock.graph import AdaptiveGraphManager, StreamNodeUpdateRequest
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.scheduler.handler import (
    AdaptiveExecutionHandler,
    JobCancelEvent,
    JobVertexFailedEvent,
    JobVertexFinishedEvent,
    JobVertexInitializedEvent,
)
from penstock.testing import RESOURCES, measured, stream_graph

if TYPE_CHECKING:
    from penstock.graph import JobVertex
    from penstock.optimizer import OperatorsFinished, ResultInfo, StrategyContext
    from penstock.scheduler.handler import JobEvent


class BoundsByRows(StreamGraphOptimizationStrategy):
    """Records its calls, and limits the tasks of consumers to the number of rows."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[int, ...], list[int]]] = []

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        call = (finished.ids, sorted(finished.results))
        if call in self.calls:
            return False
        self.calls.append(call)
        for node_id, result in finished.results.items():
            for edge in context.stream_graph.out_edges(node_id):
                context.modify_stream_node([StreamNodeUpdateRequest(edge.target_id, max_parallelism=result.rows)])
        return True


class Listening:
    """Records the vertices that it is notified of."""

    def __init__(self) -> None:
        self.notified: list[tuple[list[str], int | None, int]] = []
        self.jobs: set[str] = set()

    def on_new_job_vertices_added(self, job_id: str, vertices: Sequence[JobVertex], pending_operators: int) -> None:
        self.jobs.add(job_id)
        names = [vertex.name for vertex in vertices]
        self.notified.append((names, vertices[0].max_parallelism, pending_operators))


class Case:
    """A handler with a graph written as text; nodes from 90 on are sinks."""

    def __init__(self, text: str) -> None:
        self.strategy, self.listener = BoundsByRows(), Listening()
        optimizer = StreamGraphOptimizer([self.strategy], Configuration.load({}), RESOURCES, DecisionLog())
        self.manager = AdaptiveGraphManager(stream_graph(text), optimizer.initialize)
        self.handler = AdaptiveExecutionHandler("job 7", self.manager, optimizer, self.result_info)
        self.handler.register_job_graph_update_listener(self.listener)

    def result_info(self, vertex: JobVertex) -> ResultInfo | None:
        return None if vertex.tail_id >= 90 else measured(1, rows=10 * vertex.tail_id)


def test_a_vertex_is_created_once_all_its_inputs_have_finished() -> None:
    case = Case("1 #> 3\n2 #> 3\n3 -> 4\n4 #> 90")
    assert [vertex.name for vertex in case.manager.job_graph] == ["n1", "n2"]
    case.handler.handle_job_event(JobVertexFinishedEvent("v1"))
    assert case.listener.notified == []
    case.handler.handle_job_event(JobVertexFinishedEvent("v2"))
    case.handler.handle_job_event(JobVertexFinishedEvent("v3"))
    case.handler.handle_job_event(JobVertexFinishedEvent("v4"))
    assert [names for names, _, _ in case.listener.notified] == [["n3 -> n4"], ["n90"]]
    assert [pending for _, _, pending in case.listener.notified] == [1, 0]


def test_strategies_see_results_before_the_next_vertices_are_created() -> None:
    case = Case("1 -> 2\n2 #> 3\n3 #> 90")
    for number in (1, 2, 3):
        case.handler.handle_job_event(JobVertexFinishedEvent(f"v{number}"))
    # Both nodes of the first vertex, with the result of its last node; a sink has no result.
    assert case.strategy.calls == [((1, 2), [2]), ((3,), [3]), ((90,), [])]
    # The limit that the strategy sets on node 3 is part of the vertex created from it.
    assert [bound for _, bound, _ in case.listener.notified] == [20, 30]


@pytest.mark.parametrize(
    "event",
    [
        JobVertexInitializedEvent("v1"),
        JobVertexFailedEvent("v1", ValueError("no")),
        JobCancelEvent("enough"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_that_do_not_change_the_graph(event: JobEvent) -> None:
    case = Case("1 #> 2\n2 #> 90")
    case.handler.handle_job_event(event)
    assert (case.listener.notified, case.strategy.calls, case.manager.pending_operators) == ([], [], 2)


def test_a_vertex_cannot_finish_twice() -> None:
    case = Case("1 #> 2\n2 #> 90")
    case.handler.handle_job_event(JobVertexFinishedEvent("v1"))
    with pytest.raises(GraphError, match="v1 has finished twice"):
        case.handler.handle_job_event(JobVertexFinishedEvent("v1"))


def test_every_listener_is_notified_with_the_job_id() -> None:
    case, second = Case("1 #> 2"), Listening()
    case.handler.register_job_graph_update_listener(second)
    case.handler.handle_job_event(JobVertexFinishedEvent("v1"))
    assert case.listener.notified == second.notified == [(["n2"], 10, 0)]
    assert case.listener.jobs == second.jobs == {"job 7"}
