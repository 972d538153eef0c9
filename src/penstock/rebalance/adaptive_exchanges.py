"""Finds the exchanges of `rebalance` and `rescale` in plans; builds barrier stages for those that are adaptive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.options import ADAPTIVE_PARTITIONER_ENABLED
from penstock.errors import NoBarrierError
from penstock.hints.plan_hints import ConsumerStage, PlanHint, RequestedExchange, consumer_stage_of, hint_of_number
from penstock.rebalance.operator import barrier_stage
from penstock.rebalance.pandas_function import UserFunction
from penstock.spark.plans.catalyst import analyzed_plan, cached_plan
from penstock.spark.plans.dataframes import dataframe, hint_number
from penstock.spark.plans.fragment import rebuild
from penstock.spark.plans.nodes import LogicalNode, read_plan
from penstock.spark.plans.python_functions import pickled_function, runs_in_ordinary_tasks
from penstock.spark.run.barrier import function_id, with_output
from penstock.spark.run.pulled_rows import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


BATCH_FUNCTIONS = frozenset({"MapInArrow", "PythonMapInArrow", "MapInPandas"})
"""Spark's operators for functions that process the rows of a task as a stream of batches."""


class LocatedExchange(NamedTuple):
    """A requested exchange, its hint, and its operator: `carrier` carries the hint, or is a ``repartition(n)``."""

    carrier: LogicalNode
    hint: PlanHint
    exchange: RequestedExchange


def with_adaptive_exchanges(bridge: Bridge, config: Configuration, df: DataFrame) -> DataFrame:
    """Return a DataFrame with a barrier stage for each exchange that the options make adaptive.

    Barrier stages that were built with other options than the job's are built again.

    Before: MapInArrow(f) over a RebalancePartitions with a hint, over rows
    After:  a boundary (see `barrier_stage`) over MapInArrow(exchange, then f) in a barrier stage, over the rows
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}

    def visit(node: LogicalNode) -> None:
        """Add the replacements of the exchanges at and below a node."""
        stage = consumer_stage_at(node)
        rebuild_stage = stage.with_options(config) if stage is not None and stage.with_options is not None else None
        if rebuild_stage is not None:
            (rows,) = node.children
            visit(rows)
            plan = analyzed_plan(bridge, rebuild_stage(dataframe(bridge.session, rebuild(rows, replacements))))
            replacements[node] = with_output(plan, node.output)
            return
        is_consumer = node.name in BATCH_FUNCTIONS
        located = exchange_before(node, config) if is_consumer else exchange_at(node)
        is_adaptive = located is not None and located.exchange.resolve_options(config, located.hint.parallelism)[0]
        # An exchange with a function is replaced at the operator of the function, any other at the exchange itself.
        if located is None or not is_adaptive or is_consumer == (located.exchange.function is None):
            for child in node.children:
                visit(child)
            return
        (rows,) = located.carrier.children
        visit(rows)
        input_rows = dataframe(bridge.session, rebuild(rows, replacements))
        adaptive = replace(located.hint, exchange=replace(located.exchange, adaptive=True))
        try:
            plan = analyzed_plan(bridge, barrier_stage(input_rows, adaptive, config))
        except NoBarrierError:  # the planner then lets the consumers pull the rows in chunks
            return
        replacements[node] = with_output(plan, node.output)

    tree = read_plan(cached_plan(bridge, df))  # before any change: Spark finds cached rows by their unchanged plan
    visit(tree)
    return dataframe(bridge.session, rebuild(tree, replacements)) if replacements else df


def consumer_stage_at(node: LogicalNode) -> ConsumerStage | None:
    """Return the barrier stage of `rebalance` or `rescale` that an operator runs; None for any other operator."""
    if node.name not in {"MapInArrow", "PythonMapInArrow"}:
        return None
    return consumer_stage_of(function_id(node))


def exchange_before(node: LogicalNode, config: Configuration) -> LocatedExchange | None:
    """Return the exchange that a function reads; also a ``repartition(n)`` if the options make it adaptive."""
    (child,) = node.children
    located = exchange_at(child)
    if located is not None or not config.flag(ADAPTIVE_PARTITIONER_ENABLED) or not runs_in_ordinary_tasks(node):
        return located
    if child.repartition is None or child.name != "Repartition" or not child.repartition.shuffles:
        return None
    if node.name == "MapInPandas":  # Spark settings control its conversions to pandas
        return None
    function, schema = UserFunction(pickled_function(node)), schema_of(node.output)
    exchange = RequestedExchange(function=function, schema=schema, function_operator=node)
    hint = PlanHint(child.repartition.partitions, "Repartition", exchange=exchange)
    return LocatedExchange(child, hint, exchange)


def exchange_at(node: LogicalNode) -> LocatedExchange | None:
    """Return the exchange at a node; None if there is none.

    The carrier of its hint, a ``RebalancePartitions``, is the node itself, or is below it if the node is a
    ``Repartition`` that sets the number of partitions for plain Spark; see `dataframes.add_hint`.
    """
    carrier = node
    if node.name == "Repartition":
        (carrier,) = node.children
        while carrier.name == "Project":  # from column pruning
            (carrier,) = carrier.children
    number = hint_number(carrier) if carrier.name == "RebalancePartitions" else None
    hint = None if number is None else hint_of_number(number)
    if hint is None or hint.exchange is None:
        return None
    if node.repartition is not None and carrier is not node and hint.parallelism != node.repartition.partitions:
        return None  # the user added this repartition, not `add_hint`
    return LocatedExchange(carrier, hint, hint.exchange)
