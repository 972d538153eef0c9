"""Making exchanges adaptive that were left to the options, once a job's options are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.marks import recall
from penstock.rebalance.operator import in_one_stage
from penstock.spark.barrier import with_output
from penstock.spark.catalyst import analyzed_plan, read_plan
from penstock.spark.dataframes import dataframe, mark_of
from penstock.spark.fragment import rebuild

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.marks import Mark
    from penstock.spark.catalyst import LogicalNode
    from penstock.spark.jvm import Bridge


def with_adaptive_exchanges(bridge: Bridge, config: Configuration, plan: Any) -> Any:
    """Return an analysed plan with those exchanges in one stage each that the options make adaptive.

    Example
    -------
    >>> # before: MapInArrow(f) over a marked RebalancePartitions over rows
    >>> # after:  MapInArrow(exchange, then f) in a barrier stage over the rows, behind a boundary
    """
    replacements: dict[LogicalNode, Any] = {}

    def visit(node: LogicalNode) -> None:
        below = node.children[0] if node.name in {"MapInArrow", "PythonMapInArrow", "MapInPandas"} else node
        mark = _exchange_at(below, config)
        if mark is None or mark.exchange is None or (node is below) != (mark.exchange.function is None):
            for child in node.children:
                visit(child)
            return
        (rows,) = below.children
        visit(rows)
        df = dataframe(bridge, bridge.session, rebuild(bridge, rows, replacements))
        adaptive = replace(mark, exchange=replace(mark.exchange, adaptive=True))
        made = analyzed_plan(in_one_stage(df, adaptive, config))
        replacements[node] = with_output(bridge, made, node.handle.output())

    tree = read_plan(bridge, plan)
    visit(tree)
    return rebuild(bridge, tree, replacements)


def _exchange_at(node: LogicalNode, config: Configuration) -> Mark | None:
    """Return the mark of an exchange that the options make adaptive."""
    if node.name != "RebalancePartitions":
        return None
    number = mark_of(node.handle)
    mark = recall(number) if number is not None else None
    if mark is None or mark.exchange is None or not mark.exchange.resolved(config)[0]:
        return None
    return mark
