"""Making exchanges adaptive that were left to the options, once a job's options are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.plan_hints import lookup
from penstock.rebalance.operator import in_one_stage
from penstock.spark.barrier import with_output
from penstock.spark.catalyst import analyzed_plan
from penstock.spark.dataframes import dataframe, hint_number
from penstock.spark.fragment import rebuild
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.plan_hints import Exchange, PlanHint
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


def with_adaptive_exchanges(bridge: Bridge, config: Configuration, df: DataFrame) -> DataFrame:
    """Return a DataFrame with those exchanges in one stage each that the options make adaptive.

    Example
    -------
    >>> # before: MapInArrow(f) over a RebalancePartitions with a hint, over rows
    >>> # after:  MapInArrow(exchange, then f) in a barrier stage over the rows, behind a boundary
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}

    def visit(node: LogicalNode) -> None:
        is_consumer = node.name in {"MapInArrow", "PythonMapInArrow", "MapInPandas"}
        found = distribution_at(node.children[0] if is_consumer else node)
        is_adaptive = found is not None and found[2].resolved(config, found[1].parallelism)[0]
        if found is None or not is_adaptive or is_consumer == (found[2].function is None):
            for child in node.children:
                visit(child)
            return
        carrier, hint, exchange = found
        (rows,) = carrier.children
        visit(rows)
        below = dataframe(bridge.session, rebuild(rows, replacements))
        adaptive = replace(hint, exchange=replace(exchange, adaptive=True))
        made = analyzed_plan(bridge, in_one_stage(below, adaptive, config))
        replacements[node] = with_output(made, node.output)

    tree = read_plan(analyzed_plan(bridge, df))
    visit(tree)
    return dataframe(bridge.session, rebuild(tree, replacements))


def distribution_at(node: LogicalNode) -> tuple[LogicalNode, PlanHint, Exchange] | None:
    """Return the ``RebalancePartitions`` with the hint of an exchange that a node stands for, and the hint.

    That is the node itself, or, below a ``Repartition`` that tells plain Spark the number, what lies below; see
    `dataframes.add_hint`.
    """
    below = node
    if node.name == "Repartition":
        (below,) = node.children
        while below.name == "Project":  # of the columns that are used
            (below,) = below.children
    number = hint_number(below) if below.name == "RebalancePartitions" else None
    hint = None if number is None else lookup(number)
    if hint is None or hint.exchange is None:
        return None
    if node.repartition is not None and below is not node and hint.parallelism != node.repartition.partitions:
        return None
    return below, hint, hint.exchange
