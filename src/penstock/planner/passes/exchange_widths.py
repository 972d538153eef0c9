"""Converts a draft to the job plan, with the widths of exchanges that users set or that must be equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import Choice, NameRef, NodeRef
from penstock.graph import StreamGraph
from penstock.graph.column_names import column_names
from penstock.graph.context import forward_group
from penstock.graph.partitioner import PulledRebalancePartitioner
from penstock.planner.plan import JobPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.planner.draft import Draft, Note


def job_plan(draft: Draft, name: str) -> JobPlan:
    """Return the plan of a job."""
    graph = StreamGraph(draft.nodes.values(), draft.edges, name)
    widths = {
        group: parallelism
        for edge_id, group in draft.groups.items()
        if not isinstance(graph.edge(edge_id).partitioner, PulledRebalancePartitioner)  # it has more chunks than tasks
        and (parallelism := _user_parallelism(graph, graph.edge(edge_id).target_id)) is not None
    }
    return JobPlan(
        graph=graph,
        nodes=draft.node_plans,
        edges=draft.edge_plans,
        sources=dict(draft.sources),
        sinks=draft.sinks,
        groups=draft.groups,
        widths=widths,
        width_groups=_width_groups(draft, widths),
        stages=draft.stages,
        exchanges=draft.exchanges,
        choices=_choices(draft.notes, graph),
    )


def _choices(notes: Sequence[Note], graph: StreamGraph) -> tuple[Choice, ...]:
    """Return the decisions of the planner, with the final names of nodes."""
    columns = column_names(graph) if notes else {}
    return tuple(_choice(note, graph, columns) for note in notes)


def _choice(note: Note, graph: StreamGraph, columns: Mapping[str, str]) -> Choice:
    about = note.about
    subject = NameRef(about) if isinstance(about, str) else NodeRef(about, graph.node(about).name)
    explanation = None if note.explanation is None else note.explanation(graph, columns)
    return Choice(note.kind, subject, note.chosen, note.reason, note.figures, explanation)


def _user_parallelism(graph: StreamGraph, node_id: int) -> int | None:
    settings = (graph.node(member).parallelism for member in forward_group(graph, node_id))
    return next((parallelism for parallelism in settings if parallelism is not None), None)


def _width_groups(draft: Draft, widths: Mapping[int, int]) -> dict[int, int]:
    """Return the representative of the exchange groups that a node writes together, by group."""
    family = {group: group for group in draft.groups.values()}
    first: dict[int, int] = {}
    for edge in draft.edges:
        group = draft.groups.get(edge.id)
        if group is None or group in widths or not draft.edge_plans[edge.id].signature:
            continue
        target, source = sorted((family[first.setdefault(edge.source_id, group)], family[group]))
        family |= {member: target for member, representative in family.items() if representative == source}
    return family
