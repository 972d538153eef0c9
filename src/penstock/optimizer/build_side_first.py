"""Holds a join's large side back until the side that may turn out small is measured.

Before::

    orders ──HASH──┐
                   ├─▶ join          both sides are written at once
    users  ──HASH──┘

After::

    orders waits for users; once users is measured, orders is either chained to a broadcast join and never
    written, or written as before, less what users' keys rule out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_JOIN_STRATEGY
from penstock.decisions import DecisionKind
from penstock.optimizer.graphs import is_hashed, is_shuffled, sides
from penstock.optimizer.joins import SIDES, may_be_filtered, may_build, other
from penstock.optimizer.strategy import OperatorsFinished, StrategyContext, StreamGraphOptimizationStrategy
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping


def first_side(join_type: str, known: Mapping[str, int], is_open: Mapping[str, bool], small: int) -> str:
    """Return the side of a join to measure first, or an empty text where both had better start at once.

    Parameters
    ----------
    join_type
        Spark's name of it.
    known
        The bytes that the sources below each side hold.
    is_open
        Whether a side may give much less than its sources hold.
    small
        Holding back a side of fewer bytes is not worth it.
    """
    useful = [
        side
        for side in SIDES
        if is_open[side]
        and (may_build(join_type, side) or may_be_filtered(join_type, other(side)))
        and known[other(side)] >= small
    ]
    # Of two sides that may be small, the one with less below it; that one can be broadcast at least.
    useful.sort(key=lambda side: (known[side], not may_build(join_type, side)))
    return useful[0] if useful else ""


class BuildSideFirst(StreamGraphOptimizationStrategy):
    """Decides before the job runs which vertices wait for which."""

    def initialize(self, context: StrategyContext) -> None:
        """Hold probe sides back."""
        if context.config.get(BROADCAST_JOIN_STRATEGY) == "NONE":
            return
        graph = context.stream_graph
        for join in graph:
            edges = sides(graph, join)
            if not is_shuffled(edges):
                continue
            facts = join.properties
            known = {side: int(facts.get(f"{side}_bytes", 0)) for side in SIDES}
            is_open = {side: bool(facts.get(f"{side}_open")) and is_hashed(edges[side]) for side in SIDES}
            first = first_side(str(facts["join_type"]), known, is_open, context.resources.volume_per_task)
            if not first or not is_hashed(edges[other(first)]):
                continue
            waiting, awaited = edges[other(first)].source_id, edges[first].source_id
            if context.hold(waiting, awaited):
                reason = (
                    f"the sources below it hold {show_bytes(known[first])} before filters, joins or aggregates, "
                    f"those of the other side {show_bytes(known[other(first)])}"
                )
                context.decide(DecisionKind.BUILD_SIDE_FIRST, f"{join.id} {join.name}", first, reason)

    def on_operators_finished(self, finished: OperatorsFinished, context: StrategyContext) -> bool:
        """Change nothing; what was held back starts by itself."""
        del finished, context
        return False
