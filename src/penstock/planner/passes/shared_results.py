"""Materialises results that several readers need in different layouts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.decisions.log import Explanation
from penstock.graph import CalcOperator, OperatorKind, StreamEdge, StreamGraph
from penstock.graph.labels import listed, node_name, tables_below
from penstock.graph.partitioner import RESCALE, PulledRebalancePartitioner
from penstock.planner.draft import Draft, Note
from penstock.planner.plan import NodePlan, WriteKind

if TYPE_CHECKING:
    from collections.abc import Mapping


def materialise_shared_results(draft: Draft) -> None:
    """Write the rows of a node with several readers once, unless all readers can share an exchange."""
    for node_id in list(draft.stream_nodes):
        outgoing = draft.out_edges(node_id)
        if len(outgoing) < 2:
            continue
        consumers = " and ".join(_consumer_name(draft, edge.target_id) for edge in outgoing)
        reason = f"read {len(outgoing)} times, by {consumers}"
        note = Note(_producer_name(draft, node_id), "run once", reason, explanation=partial(_explanation, node_id))
        draft.notes.append(note)
        signatures = {draft.edges[edge.id].signature for edge in outgoing}
        if len(signatures) == 1 and "" not in signatures and not any(edge.is_forward for edge in outgoing):
            continue
        group = draft.new_group()
        for edge in outgoing:
            _read_rows(draft, edge, group)


def _explanation(node_id: int, graph: StreamGraph, columns: Mapping[str, str]) -> Explanation:
    tables = tables_below(graph, node_id)
    readers = [
        node_name(graph, graph.node(_skip_projections(graph, edge.target_id)), columns)
        for edge in graph.out_edges(node_id)
    ]
    reader_names = listed(list(dict.fromkeys(filter(None, readers))), "steps")
    sentence = f"rows of {listed(tables, 'tables')} are computed once, as the plan needs them {len(readers)} times"
    return Explanation(f"{sentence}: for {reader_names}" if reader_names else sentence, tables=tables)


def _skip_projections(graph: StreamGraph, node_id: int) -> int:
    """Return the first node from a node downstream that is more than a projection."""
    while graph.node(node_id).kind is OperatorKind.CALC and len(following := graph.out_edges(node_id)) == 1:
        node_id = following[0].target_id
    return node_id


def _consumer_name(draft: Draft, node_id: int) -> str:
    """Return the name of the first operator from a node downstream that is more than a projection."""
    while draft.stream_nodes[node_id].kind is OperatorKind.CALC and len(following := draft.out_edges(node_id)) == 1:
        node_id = following[0].target_id
    return draft.stream_nodes[node_id].name


def _producer_name(draft: Draft, node_id: int) -> str:
    """Return the names of the operators that compute the rows of a node, without projections."""
    chain = [draft.stream_nodes[n] for n in sorted(draft.chained(node_id), reverse=True)]
    names = [node.name for node in chain if node.kind is not OperatorKind.CALC]
    return " -> ".join(names) or draft.stream_nodes[node_id].name


def _read_rows(draft: Draft, edge: StreamEdge, group: int) -> None:
    """Make an edge read materialised rows; a new node before an exchange writes the layout of the consumer."""
    plan = draft.edges[edge.id]
    draft.stream_edges.remove(edge)
    rows = replace(plan, write=WriteKind.ROWS, operator=None, keys=(), signature="rows")
    is_pulled = isinstance(edge.partitioner, PulledRebalancePartitioner)  # in chunks, which other readers cannot use
    if edge.is_forward or (plan.write is WriteKind.ROWS and not is_pulled):
        draft.stream_edges.append(replace(edge, partitioner=RESCALE))
        draft.edges[edge.id] = rows
        draft.groups[edge.id] = group
        return
    between = draft.node(CalcOperator(), "Read shared", NodePlan(None))
    draft.edge(edge.source_id, between, RESCALE, replace(rows, consumer=None), group=group)
    draft.stream_edges.append(replace(edge, source_id=between))
