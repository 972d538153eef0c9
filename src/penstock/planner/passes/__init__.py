"""The passes of the planner over a translated job, see `PASSES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.graph import CalcOperator
from penstock.planner.draft import Draft
from penstock.planner.passes.filter_paths import add_filter_paths
from penstock.planner.passes.grouping_sets import add_grouping_sets
from penstock.planner.passes.shared_results import materialize_shared_results
from penstock.planner.passes.source_sizes import add_source_sizes


def mark_dropped_columns(draft: Draft) -> None:
    """Set `drops_columns` of projections that only drop columns, so that joins around them can be reordered."""
    for node_id, plan in draft.nodes.items():
        node, top = draft.stream_nodes[node_id], plan.top
        is_projection = top is not None and node.name == top.name == "Project" and top.children[0].has_columns(top.ids)
        if is_projection and isinstance(node.operator, CalcOperator):
            draft.update_node(node_id, operator=replace(node.operator, drops_columns=True))


Pass = Callable[[Draft], None]

PASSES: tuple[Pass, ...] = (
    add_filter_paths,
    mark_dropped_columns,
    add_grouping_sets,
    materialize_shared_results,
    add_source_sizes,
)
"""The passes in run order. Sizes come last: filter paths and grouping sets decide which row counts are needed."""
