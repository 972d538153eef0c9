"""The function of an exchange whose consumers pull rows in chunks, as a part of a job's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.rebalance.operator import apply_task, arrow_function
from penstock.rebalance.pulled import PullTask
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import dataframe
from penstock.spark.run import pulled
from penstock.spark.run.barrier import with_output

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql.types import StructType

    from penstock.hints.plan_hints import Exchange
    from penstock.spark.bridge.handles import InternalRows
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode


@dataclass(frozen=True, slots=True)
class PulledConsumer:
    """A function whose tasks pull rows, and the reports of these tasks."""

    node: LogicalNode
    """The function in Spark's plan (``MapInArrow``, ``MapInPandas``)."""
    exchange: Exchange
    columns: StructType
    """The input columns of the function."""
    reports: Accumulator[list[dict[str, Any]]]

    def over(self, bridge: Bridge, chunks: InternalRows, tasks: int) -> LogicalPlan:
        """Return the plan of the function over chunks of rows, with a number of tasks."""
        tickets = dataframe(bridge.session, pulled.ticket_leaf(bridge.session, self.columns, chunks, tasks))
        function = arrow_function(self.exchange, self.columns, bridge.spark)
        assert self.exchange.schema is not None
        mapped = apply_task(tickets, PullTask(function, self.reports), self.exchange, self.exchange.schema)
        return with_output(analyzed_plan(bridge, mapped), self.node.output)
