"""Making exchanges adaptive that were left to the options, once a job's options are known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED
from penstock.errors import NoBarrierError
from penstock.plan_hints import Exchange, PlanHint, Stage, lookup, stage_of
from penstock.rebalance.operator import in_one_stage
from penstock.rebalance.sent_function import SentFunction
from penstock.spark.barrier import function_id, with_output
from penstock.spark.catalyst import analyzed_plan, cached_plan
from penstock.spark.dataframes import dataframe, hint_number
from penstock.spark.fragment import rebuild
from penstock.spark.plans import read_plan
from penstock.spark.pulled import columns_of
from penstock.spark.python_functions import is_ordinary, pickled_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


CONSUMERS = frozenset({"MapInArrow", "PythonMapInArrow", "MapInPandas"})
"""Functions that take the rows of a task as they come."""


def with_adaptive_exchanges(bridge: Bridge, config: Configuration, df: DataFrame) -> DataFrame:
    """Return a DataFrame with those exchanges in one stage each that the options make adaptive.

    Those that were made with other options than the job's are made again.

    Example
    -------
    >>> # before: MapInArrow(f) over a RebalancePartitions with a hint, over rows
    >>> # after:  MapInArrow(exchange, then f) in a barrier stage over the rows, behind a boundary
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}

    def visit(node: LogicalNode) -> None:
        stage = stage_at(node)
        again = stage.with_options(config) if stage is not None and stage.with_options is not None else None
        if again is not None:
            (rows,) = node.children
            visit(rows)
            made = analyzed_plan(bridge, again(dataframe(bridge.session, rebuild(rows, replacements))))
            replacements[node] = with_output(made, node.output)
            return
        is_consumer = node.name in CONSUMERS
        found = exchange_before(node, config) if is_consumer else distribution_at(node)
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
        try:
            made = analyzed_plan(bridge, in_one_stage(below, adaptive, config))
        except NoBarrierError:  # the planner finds it as it is
            return
        replacements[node] = with_output(made, node.output)

    tree = read_plan(cached_plan(bridge, df))  # cached rows are no longer found in a plan that was changed
    visit(tree)
    return dataframe(bridge.session, rebuild(tree, replacements)) if replacements else df


def stage_at(node: LogicalNode) -> Stage | None:
    """Return what an operator was made for that is one stage with the rebalance or rescale before it."""
    if node.name not in {"MapInArrow", "PythonMapInArrow"}:
        return None
    return stage_of(function_id(node))


def exchange_before(node: LogicalNode, config: Configuration) -> tuple[LogicalNode, PlanHint, Exchange] | None:
    """Return the exchange before a function: one of Penstock's, or the user's ``repartition(n)`` if options say so.

    See `distribution_at`.
    """
    (child,) = node.children
    found = distribution_at(child)
    if found is not None or not config.flag(ADAPTIVE_PARTITIONER_ENABLED) or not is_ordinary(node):
        return found
    if child.repartition is None or child.name != "Repartition" or not child.repartition.shuffles:
        return None
    if node.name == "MapInPandas":  # how pandas' values become Spark's, settings of Spark say
        return None
    exchange = Exchange(function=SentFunction(pickled_function(node)), schema=columns_of(node.output), origin=node)
    hint = PlanHint(child.repartition.partitions, "Repartition", exchange=exchange)
    return child, hint, exchange


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
