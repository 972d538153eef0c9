"""Whether the leaves of a vertex may claim to be hash partitioned.

A leaf of merged or split subpartitions lies hashed towards inputs that are cut in the same way, and towards nothing
else. If a join of the vertex had one input with such a claim and one without, Spark would lay the other one out by
the claim, and rows would miss each other. So either all inputs of every join claim, or no leaf does: then Spark
exchanges what has to be exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.optimizer.graphs import sides

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.graph import JobVertex, StreamEdge, StreamGraph


def may_claim(
    vertex: JobVertex,
    graph: StreamGraph,
    is_hashed: Callable[[StreamEdge], bool],
    is_relation: Callable[[StreamEdge], bool],
) -> bool:
    """Return whether the claims of a vertex's leaves are consistent.

    Parameters
    ----------
    vertex, graph
        The vertex, and the graph it was made from.
    is_hashed
        Whether an input of the vertex would claim to be hashed.
    is_relation
        Whether it is a broadcast relation, which every task has whole.
    """
    inside = set(vertex.node_ids)
    lies_hashed: dict[int, bool] = {}
    for node_id in vertex.node_ids:
        edges = graph.in_edges(node_id)
        found = [
            lies_hashed[edge.source_id] if edge.source_id in inside else is_hashed(edge)
            for edge in edges
            if edge.source_id in inside or not is_relation(edge)
        ]
        if sides(graph, graph.node(node_id)) and len(set(found)) > 1:
            return False
        lies_hashed[node_id] = bool(found) and all(found)
    return True
