from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import GraphError
from penstock.graph import AdaptiveGraphManager, CalcOperator, StreamEdge, StreamGraph, StreamNode
from penstock.graph.partitioner import FORWARD, HashPartitioner
from penstock.testing import stream_graph


def vertices(manager: Any) -> Any:
    return {vertex.name for vertex in manager.job_graph}


def after(manager: Any, vertex_id: str) -> Any:
    """Finish a vertex; return the vertices that become ready."""
    manager.finish(vertex_id)
    return manager.grow()


def test_sources_and_their_chains_start_first() -> None:
    manager = AdaptiveGraphManager(stream_graph("1 -> 2\n2 #> 5\n3 -> 4\n4 #> 5\n5 -> 6"))
    assert vertices(manager) == {"n1 -> n2", "n3 -> n4"}
    assert manager.pending_operators == 2


def test_a_vertex_waits_for_all_its_inputs() -> None:
    manager = AdaptiveGraphManager(stream_graph("1 -> 2\n2 #> 5\n3 -> 4\n4 #> 5\n5 -> 6"))
    assert after(manager, "v1") == []
    (vertex,) = after(manager, "v2")
    assert vertex.name == "n5 -> n6"
    assert vertex.tail_id == 6
    assert [edge.source_vertex_id for edge in vertex.inputs] == ["v1", "v2"]
    assert manager.pending_operators == 0


def test_a_chain_waits_for_the_broadcast_side() -> None:
    manager = AdaptiveGraphManager(stream_graph("1 *> 3\n2 -> 3\n3 #> 4"))
    assert vertices(manager) == {"n1"}
    (vertex,) = after(manager, "v1")
    assert vertex.name == "n2 -> n3"


def test_a_shared_result_feeds_all_its_readers() -> None:
    manager = AdaptiveGraphManager(stream_graph("1 #> 2\n1 #> 3"))
    assert {vertex.name for vertex in after(manager, "v1")} == {"n2", "n3"}


def test_the_users_parallelism_applies_to_the_vertex() -> None:
    manager = AdaptiveGraphManager(stream_graph("1 -> 2\n2 #> 3", parallelism={2: 7}))
    assert manager.job_graph.vertex("v1").parallelism == 7
    with pytest.raises(GraphError, match="different parallelisms"):
        AdaptiveGraphManager(stream_graph("1 -> 2", parallelism={1: 2, 2: 3}))


@pytest.mark.parametrize("vertex", ["v9", "v1"])
def test_only_running_vertices_can_finish(vertex: str) -> None:
    manager = AdaptiveGraphManager(stream_graph("1 #> 2"))
    manager.finish("v1")
    with pytest.raises(GraphError):
        manager.finish(vertex)


@st.composite
def graphs(draw: Any) -> Any:
    """Draw a graph whose nodes read from earlier ones, by FORWARD only from nodes with a single consumer."""
    count = draw(st.integers(1, 40))
    edges, readers = [], [0] * count
    inputs = [sorted(draw(st.sets(st.integers(0, node - 1), max_size=3))) if node else [] for node in range(count)]
    for sources in inputs:
        for source in sources:
            readers[source] += 1
    for node, sources in enumerate(inputs):
        for number, source in enumerate(sources, 1):
            forward = readers[source] == 1 and draw(st.booleans())
            edges.append(
                StreamEdge(f"{source}-{node}", source, node, FORWARD if forward else HashPartitioner(("k",)), number)
            )
    return StreamGraph([StreamNode(i, CalcOperator(), f"n{i}") for i in range(count)], edges)


@given(graphs(), st.randoms())
def test_each_node_is_in_a_single_vertex_after_its_inputs(stream_graph: Any, random: Any) -> None:
    manager = AdaptiveGraphManager(stream_graph)
    running, finished = [v.id for v in manager.job_graph], set()
    seen: list[Any] = []
    while running:
        vertex_id = running.pop(random.randrange(len(running)))
        vertex = manager.job_graph.vertex(vertex_id)
        assert all(edge.source_vertex_id in finished for edge in vertex.inputs)
        position = {node: i for i, node in enumerate(vertex.node_ids)}
        for edge in stream_graph.edges:
            if edge.is_forward and edge.target_id in position:
                assert position[edge.source_id] < position[edge.target_id]
        seen += vertex.node_ids
        finished.add(vertex_id)
        running += [vertex.id for vertex in after(manager, vertex_id)]
    assert sorted(seen) == sorted(node.id for node in stream_graph)
    assert manager.pending_operators == 0


def test_a_thousand_nodes() -> None:
    text = "\n".join(f"{i} {'->' if i % 3 else '#>'} {i + 1}" for i in range(1, 1500))
    manager = AdaptiveGraphManager(stream_graph(text))
    start = time.perf_counter()
    todo = [v.id for v in manager.job_graph]
    while todo:
        todo += [v.id for v in after(manager, todo.pop())]
    assert manager.pending_operators == 0
    assert len(manager.job_graph) == 500
    assert time.perf_counter() - start < 10  # quadratic cost would take minutes
