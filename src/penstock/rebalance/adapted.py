"""Making exchanges adaptive that were left to the options, once a job's options are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.marks import recall
from penstock.rebalance.operator import in_one_stage
from penstock.spark.barrier import with_output
from penstock.spark.catalyst import analyzed_plan
from penstock.spark.dataframes import dataframe, mark_of
from penstock.spark.fragment import rebuild
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.marks import Exchange, Mark
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


def with_adaptive_exchanges(bridge: Bridge, config: Configuration, df: DataFrame) -> DataFrame:
    """Return a DataFrame with those exchanges in one stage each that the options make adaptive.

    Example
    -------
    >>> # before: MapInArrow(f) over a marked RebalancePartitions over rows
    >>> # after:  MapInArrow(exchange, then f) in a barrier stage over the rows, behind a boundary
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}

    def visit(node: LogicalNode) -> None:
        is_consumer = node.name in {"MapInArrow", "PythonMapInArrow", "MapInPandas"}
        found = dealt_out_at(node.children[0] if is_consumer else node)
        is_adaptive = found is not None and found[2].resolved(config, found[1].parallelism)[0]
        if found is None or not is_adaptive or is_consumer == (found[2].function is None):
            for child in node.children:
                visit(child)
            return
        marked, mark, exchange = found
        (rows,) = marked.children
        visit(rows)
        below = dataframe(bridge.session, rebuild(rows, replacements))
        adaptive = replace(mark, exchange=replace(exchange, adaptive=True))
        made = analyzed_plan(bridge, in_one_stage(below, adaptive, config))
        replacements[node] = with_output(made, node.output)

    tree = read_plan(analyzed_plan(bridge, df))
    visit(tree)
    return dataframe(bridge.session, rebuild(tree, replacements))


def dealt_out_at(node: LogicalNode) -> tuple[LogicalNode, Mark, Exchange] | None:
    """Return the marked ``RebalancePartitions`` of an exchange that a node stands for, with what was said there.

    That is the node itself, or, below a ``Repartition`` that tells plain Spark the number, what lies below; see
    `dataframes.mark`.
    """
    below = node
    if node.name == "Repartition":
        (below,) = node.children
        while below.name == "Project":  # of the columns that are used
            (below,) = below.children
    number = mark_of(below) if below.name == "RebalancePartitions" else None
    mark = None if number is None else recall(number)
    if mark is None or mark.exchange is None:
        return None
    if node.repartition is not None and below is not node and mark.parallelism != node.repartition.partitions:
        return None
    return below, mark, mark.exchange
