"""The last step: a draft becomes the job plan, with the widths of exchanges that are fixed or belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.decisions import Choice, NameRef, NodeRef
from penstock.graph import StreamGraph
from penstock.graph.context import forward_group
from penstock.graph.naming import column_names
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
        if not isinstance(graph.edge(edge_id).partitioner, PulledRebalancePartitioner)  # it has more pieces than tasks
        and (parallelism := _given(graph, graph.edge(edge_id).target_id)) is not None
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
    """Return what the planner decided; nodes have their final names only now."""
    columns = column_names(graph) if notes else {}
    return tuple(_choice(note, graph, columns) for note in notes)


def _choice(note: Note, graph: StreamGraph, columns: Mapping[str, str]) -> Choice:
    about = note.about
    subject = NameRef(about) if isinstance(about, str) else NodeRef(about, graph.node(about).name)
    told = None if note.told is None else note.told(graph, columns)
    return Choice(note.kind, subject, note.chosen, note.reason, note.figures, told)


def _given(graph: StreamGraph, node_id: int) -> int | None:
    """Return the parallelism that is given to the vertex a node will be part of."""
    given = (graph.node(one).parallelism for one in forward_group(graph, node_id))
    return next((number for number in given if number is not None), None)


def _width_groups(draft: Draft, widths: Mapping[int, int]) -> dict[int, int]:
    """Return, for exchange groups that a node writes for together, one that stands for all of them."""
    family = {group: group for group in draft.groups.values()}
    first: dict[int, int] = {}
    for edge in draft.edges:
        group = draft.groups.get(edge.id)
        if group is None or group in widths or not draft.edge_plans[edge.id].signature:
            continue
        kept, gone = sorted((family[first.setdefault(edge.source_id, group)], family[group]))
        family |= {one: kept for one, now in family.items() if now == gone}
    return family
