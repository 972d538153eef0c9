"""Makes exchanges adaptive whose mode was left to the options, once the options of the job are available."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED
from penstock.errors import NoBarrierError
from penstock.hints.plan_hints import Exchange, PlanHint, Stage, lookup, stage_of
from penstock.rebalance.operator import barrier_stage
from penstock.rebalance.pandas_function import UserFunction
from penstock.spark.plans.catalyst import analyzed_plan, cached_plan
from penstock.spark.plans.dataframes import dataframe, hint_number
from penstock.spark.plans.fragment import rebuild
from penstock.spark.plans.nodes import read_plan
from penstock.spark.plans.python_functions import is_ordinary, pickled_function
from penstock.spark.run.barrier import function_id, with_output
from penstock.spark.run.pulled import columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode


CONSUMERS = frozenset({"MapInArrow", "PythonMapInArrow", "MapInPandas"})
"""Functions that process the rows of a task as a stream of batches."""


def with_adaptive_exchanges(bridge: Bridge, config: Configuration, df: DataFrame) -> DataFrame:
    """Return a DataFrame with a barrier stage for each exchange that the options make adaptive.

    Barrier stages that were built under other options than the job's are built again.

    Example
    -------
    >>> # before: MapInArrow(f) over a RebalancePartitions with a hint, over rows
    >>> # after:  MapInArrow(exchange, then f) in a barrier stage over the rows, behind a boundary
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}

    def visit(node: LogicalNode) -> None:
        stage = stage_at(node)
        rebuild_stage = stage.with_options(config) if stage is not None and stage.with_options is not None else None
        if rebuild_stage is not None:
            (rows,) = node.children
            visit(rows)
            plan = analyzed_plan(bridge, rebuild_stage(dataframe(bridge.session, rebuild(rows, replacements))))
            replacements[node] = with_output(plan, node.output)
            return
        is_consumer = node.name in CONSUMERS
        distribution = exchange_before(node, config) if is_consumer else distribution_at(node)
        is_adaptive = distribution is not None and distribution[2].resolved(config, distribution[1].parallelism)[0]
        if distribution is None or not is_adaptive or is_consumer == (distribution[2].function is None):
            for child in node.children:
                visit(child)
            return
        carrier, hint, exchange = distribution
        (rows,) = carrier.children
        visit(rows)
        below = dataframe(bridge.session, rebuild(rows, replacements))
        adaptive = replace(hint, exchange=replace(exchange, adaptive=True))
        try:
            plan = analyzed_plan(bridge, barrier_stage(below, adaptive, config))
        except NoBarrierError:  # the planner handles the unchanged exchange
            return
        replacements[node] = with_output(plan, node.output)

    tree = read_plan(cached_plan(bridge, df))  # first: Spark would not find cached rows in a changed plan
    visit(tree)
    return dataframe(bridge.session, rebuild(tree, replacements)) if replacements else df


def stage_at(node: LogicalNode) -> Stage | None:
    """Return the barrier stage of `rebalance` or `rescale` that an operator belongs to, or None."""
    if node.name not in {"MapInArrow", "PythonMapInArrow"}:
        return None
    return stage_of(function_id(node))


def exchange_before(node: LogicalNode, config: Configuration) -> tuple[LogicalNode, PlanHint, Exchange] | None:
    """Return the exchange before a function as `distribution_at`; also ``repartition(n)`` if the options allow."""
    (child,) = node.children
    distribution = distribution_at(child)
    if distribution is not None or not config.flag(ADAPTIVE_PARTITIONER_ENABLED) or not is_ordinary(node):
        return distribution
    if child.repartition is None or child.name != "Repartition" or not child.repartition.shuffles:
        return None
    if node.name == "MapInPandas":  # its conversions depend on Spark settings
        return None
    exchange = Exchange(function=UserFunction(pickled_function(node)), schema=columns_of(node.output), origin=node)
    hint = PlanHint(child.repartition.partitions, "Repartition", exchange=exchange)
    return child, hint, exchange


def distribution_at(node: LogicalNode) -> tuple[LogicalNode, PlanHint, Exchange] | None:
    """Return an exchange at a node as its ``RebalancePartitions``, the hint, and the exchange; None if there is none.

    The ``RebalancePartitions`` is the node itself, or is below a ``Repartition`` that sets the number of partitions for
    plain Spark; see `dataframes.add_hint`.
    """
    below = node
    if node.name == "Repartition":
        (below,) = node.children
        while below.name == "Project":  # from column pruning
            (below,) = below.children
    number = hint_number(below) if below.name == "RebalancePartitions" else None
    hint = None if number is None else lookup(number)
    if hint is None or hint.exchange is None:
        return None
    if node.repartition is not None and below is not node and hint.parallelism != node.repartition.partitions:
        return None
    return below, hint, hint.exchange
