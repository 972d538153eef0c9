"""Materializes results that several consumers need in different layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from penstock.decisions.log import Explanation
from penstock.graph import CalcOperator, OperatorKind, StreamEdge, StreamGraph, StreamNode
from penstock.graph.labels import listed, node_name, tables_below
from penstock.graph.partitioner import RESCALE, PulledRebalancePartitioner
from penstock.planner.draft import Draft, DraftChoice
from penstock.planner.plan import NodePlan, WriteKind


def materialize_shared_results(draft: Draft) -> None:
    """Record that nodes with several consumers run once; write unpartitioned rows unless all share an exchange."""
    for node_id in list(draft.stream_nodes):
        outgoing = draft.out_edges(node_id)
        if len(outgoing) < 2:
            continue
        node_of, out_edges = draft.stream_nodes.__getitem__, draft.out_edges
        consumers = " and ".join(_skip_calcs(edge.target_id, node_of, out_edges).name for edge in outgoing)
        reason = f"read {len(outgoing)} times, by {consumers}"
        choice = DraftChoice(_producer_name(draft, node_id), "run once", reason, explain=partial(_explanation, node_id))
        draft.choices.append(choice)
        # Consumers whose edges have the same signature can read the same exchange, unless the signature is empty.
        signatures = {draft.edges[edge.id].signature for edge in outgoing}
        if len(signatures) == 1 and "" not in signatures and not any(edge.is_forward for edge in outgoing):
            continue
        group = draft.new_group()
        for edge in outgoing:
            _read_rows(draft, edge, group)


def _explanation(node_id: int, graph: StreamGraph, columns: Mapping[str, str]) -> Explanation:
    tables = tables_below(graph, node_id)
    readers = [
        node_name(graph, _skip_calcs(edge.target_id, graph.node, graph.out_edges), columns)
        for edge in graph.out_edges(node_id)
    ]
    reader_names = listed(list(dict.fromkeys(filter(None, readers))), "steps")
    sentence = f"rows of {listed(tables, 'tables')} are computed once, as the plan needs them {len(readers)} times"
    return Explanation(f"{sentence}: for {reader_names}" if reader_names else sentence, tables=tables)


def _skip_calcs(
    node_id: int, node_of: Callable[[int], StreamNode], out_edges: Callable[[int], Sequence[StreamEdge]]
) -> StreamNode:
    """Return the first node, from `node_id` downstream, that is not a Calc with a single consumer."""
    while node_of(node_id).kind is OperatorKind.CALC and len(following := out_edges(node_id)) == 1:
        node_id = following[0].target_id
    return node_of(node_id)


def _producer_name(draft: Draft, node_id: int) -> str:
    """Return the names of a node and of those chained before it, the node first; Calc only if there is no other."""
    chain = [draft.stream_nodes[n] for n in sorted(draft.chained_upstream(node_id), reverse=True)]
    names = [node.name for node in chain if node.kind is not OperatorKind.CALC]
    return " -> ".join(names) or draft.stream_nodes[node_id].name


def _read_rows(draft: Draft, edge: StreamEdge, group: int) -> None:
    """Let an edge read the materialized rows; if it needs another layout, a new node reads and exchanges them."""
    plan = draft.edges[edge.id]
    draft.stream_edges.remove(edge)
    rows_plan = replace(plan, write=WriteKind.ROWS, operator=None, keys=(), signature="rows")
    is_pulled = isinstance(edge.partitioner, PulledRebalancePartitioner)  # its chunks are useless to other consumers
    if edge.is_forward or (plan.write is WriteKind.ROWS and not is_pulled):
        draft.stream_edges.append(replace(edge, partitioner=RESCALE))
        draft.edges[edge.id] = rows_plan
        draft.groups[edge.id] = group
        return
    reader_id = draft.add_node(CalcOperator(), "Read shared", NodePlan(None))
    draft.add_edge(edge.source_id, reader_id, RESCALE, replace(rows_plan, consumer=None), group=group)
    draft.stream_edges.append(replace(edge, source_id=reader_id))
