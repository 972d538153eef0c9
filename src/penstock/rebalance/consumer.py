"""The function of an exchange whose consumers pull rows in chunks, as a part of a job's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.rebalance.operator import apply_task, arrow_function
from penstock.rebalance.pulled import PullTask
from penstock.spark import pulled
from penstock.spark.barrier import with_output
from penstock.spark.catalyst import analyzed_plan
from penstock.spark.dataframes import dataframe

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql.types import StructType

    from penstock.plan_hints import Exchange
    from penstock.spark.handles import InternalRows
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class PulledConsumer:
    """A function whose tasks pull rows, and the reports of these tasks.

    Parameters
    ----------
    node
        The function in Spark's plan (``MapInArrow``, ``MapInPandas``).
    columns
        The input columns of the function.
    """

    node: LogicalNode
    exchange: Exchange
    columns: StructType
    reports: Accumulator[list[dict[str, Any]]]

    def over(self, bridge: Bridge, chunks: InternalRows, tasks: int) -> LogicalPlan:
        """Return the plan of the function over chunks of rows, with a number of tasks."""
        tickets = dataframe(bridge.session, pulled.ticket_leaf(bridge.session, self.columns, chunks, tasks))
        function = arrow_function(self.exchange, self.columns, bridge.spark)
        assert self.exchange.schema is not None
        mapped = apply_task(tickets, PullTask(function, self.reports), self.exchange, self.exchange.schema)
        return with_output(analyzed_plan(bridge, mapped), self.node.output)
