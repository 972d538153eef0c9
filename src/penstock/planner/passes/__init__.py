"""The passes of the planner over a translated job, see `PASSES`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.planner.draft import Draft
from penstock.planner.passes.dropped_columns import mark_dropped_columns
from penstock.planner.passes.filter_paths import add_filter_paths
from penstock.planner.passes.grouping_sets import add_grouping_sets
from penstock.planner.passes.shared_results import materialise_shared_results
from penstock.planner.passes.source_sizes import add_source_sizes

Pass = Callable[[Draft], Draft]

PASSES: tuple[Pass, ...] = (
    add_filter_paths,
    mark_dropped_columns,
    add_grouping_sets,
    materialise_shared_results,
    add_source_sizes,
)
"""The passes in run order. Sizes come last, because the row counts they need depend on filters and grouping sets."""
