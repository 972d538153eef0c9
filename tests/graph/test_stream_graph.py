from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from penstock.errors import GraphError
from penstock.graph import CalcOperator, StreamEdge, StreamGraph, StreamNode
from penstock.graph.partitioner import FORWARD, REBALANCE, HashPartitioner
from penstock.testing import stream_graph


def node(number: Any, **facts: Any) -> Any:
    return StreamNode(number, CalcOperator(), f"n{number}", **facts)


def test_nodes_come_after_their_inputs() -> None:
    order = [n.id for n in stream_graph("3 -> 2\n2 #> 1\n4 #> 1")]
    assert order.index(3) < order.index(2) < order.index(1)
    assert order.index(4) < order.index(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: node(1, parallelism=0), "invalid parallelism 0"),
        (lambda: node(1, max_parallelism=-5), "invalid max parallelism -5"),
        (lambda: HashPartitioner(()), "at least one key"),
        (lambda: StreamEdge("e", 1, 1, FORWARD), "to itself"),
        (lambda: StreamEdge("e", 1, 2, FORWARD, 0), "type number"),
        (lambda: StreamGraph([node(1), node(1)], []), "two nodes"),
        (lambda: StreamGraph([node(1)], [StreamEdge("e", 1, 2, FORWARD)]), "refers to node 2"),
        (lambda: stream_graph("1 #> 2\n2 #> 3\n3 #> 1"), "cycle"),
        (lambda: stream_graph("1 -> 2\n1 #> 3"), "several consumers and a FORWARD edge"),
        (lambda: stream_graph("1 -> 2").node(9), "no node 9"),
        (lambda: stream_graph("1 -> 2").edge("x"), "no edge x"),
    ],
)
def test_invalid_graphs_are_refused(make: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        make()


def test_replace_does_not_change_the_old_graph() -> None:
    old = stream_graph("1 #> 2")
    (edge,) = old.edges
    new = old.replace(edges=[StreamEdge(edge.id, 1, 2, REBALANCE)])
    assert str(new.edge(edge.id).partitioner) == "REBALANCE"
    assert str(old.edge(edge.id).partitioner) == "HASH(k)"


def test_exchange_of_edges() -> None:
    edges = stream_graph("1 -> 2\n2 #> 3").edges
    assert [edge.exchange for edge in edges] == ["PIPELINED", "BLOCKING"]


def test_nodes_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        node(1).operator = CalcOperator(is_cheap=True)
