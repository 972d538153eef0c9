"""Lets results with several kinds of readers be read by all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from penstock.decisions import Told
from penstock.graph import CalcOperator, OperatorKind
from penstock.graph.partitioner import RESCALE, PulledRebalancePartitioner
from penstock.graph.wording import listed, node_name, tables_below
from penstock.planner.draft import DraftBuilder, Note
from penstock.planner.plan import NodePlan, WriteKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.graph import StreamEdge, StreamGraph
    from penstock.planner.draft import Draft


def materialise_shared_results(draft: Draft) -> Draft:
    """Write the rows of a node with several readers once, unless all readers want them written alike."""
    builder = DraftBuilder.of(draft)
    for node_id in draft.nodes:
        outgoing = builder.out_edges(node_id)
        if len(outgoing) < 2:
            continue
        consumers = " and ".join(_first_after(builder, edge.target_id) for edge in outgoing)
        why = f"read {len(outgoing)} times, by {consumers}"
        note = Note(_last_before(builder, node_id), "run once", why, told=partial(_told, node_id))
        builder.notes.append(note)
        signatures = {builder.edge_plans[edge.id].signature for edge in outgoing}
        if len(signatures) == 1 and "" not in signatures and not any(edge.is_forward for edge in outgoing):
            continue
        group = builder.new_group()
        for edge in outgoing:
            _read_rows(builder, edge, group)
    return builder.draft()


def _told(node_id: int, graph: StreamGraph, columns: Mapping[str, str]) -> Told:
    """Return how people are told that rows are computed once."""
    tables = tables_below(graph, node_id)
    readers = [
        node_name(graph, graph.node(_worth_a_word(graph, edge.target_id)), columns) for edge in graph.out_edges(node_id)
    ]
    named = listed(list(dict.fromkeys(filter(None, readers))), "steps")
    sentence = f"rows of {listed(tables, 'tables')} are computed once, as the plan needs them {len(readers)} times"
    return Told(f"{sentence}: for {named}" if named else sentence, tables=tables)


def _worth_a_word(graph: StreamGraph, node_id: int) -> int:
    """Return the first node from one on that is more than a projection."""
    while graph.node(node_id).kind is OperatorKind.CALC and len(following := graph.out_edges(node_id)) == 1:
        node_id = following[0].target_id
    return node_id


def _first_after(builder: DraftBuilder, node_id: int) -> str:
    """Return the name of the first operator from a node on that is more than a projection."""
    while builder.nodes[node_id].kind is OperatorKind.CALC:
        following = builder.out_edges(node_id)
        if len(following) != 1:
            break
        node_id = following[0].target_id
    return builder.nodes[node_id].name


def _last_before(builder: DraftBuilder, node_id: int) -> str:
    """Return the names of the operators that give a node's rows, projections left out."""
    chain = [builder.nodes[n] for n in sorted(builder.chained(node_id), reverse=True)]
    names = [node.name for node in chain if node.kind is not OperatorKind.CALC]
    return " -> ".join(names) or builder.nodes[node_id].name


def _read_rows(builder: DraftBuilder, edge: StreamEdge, group: int) -> None:
    """Let an edge read materialised rows; unless it only forwards, a node in between writes what it wants."""
    plan = builder.edge_plans[edge.id]
    builder.edges.remove(edge)
    rows = replace(plan, write=WriteKind.ROWS, operator=None, keys=(), signature="rows")
    is_pulled = isinstance(edge.partitioner, PulledRebalancePartitioner)  # in pieces, which others do not want
    if edge.is_forward or (plan.write is WriteKind.ROWS and not is_pulled):
        builder.edges.append(replace(edge, partitioner=RESCALE))
        builder.edge_plans[edge.id] = rows
        builder.groups[edge.id] = group
        return
    between = builder.node(CalcOperator(), "Read shared", NodePlan(None))
    builder.edge(edge.source_id, between, RESCALE, replace(rows, consumer=None), group=group)
    builder.edges.append(replace(edge, source_id=between))
