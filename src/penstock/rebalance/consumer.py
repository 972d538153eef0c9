"""The function behind an exchange whose consumers take rows piece by piece, as a part of a job's plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.rebalance.operator import applied, arrow_function
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
    """A function, and what its tasks tell of themselves.

    Parameters
    ----------
    node
        The function in Spark's plan (``MapInArrow``, ``MapInPandas``).
    exchange
        What was said of the exchange, the function included.
    columns
        What the function takes.
    reports
        Takes the reports of tasks.
    """

    node: LogicalNode
    exchange: Exchange
    columns: StructType
    reports: Accumulator[list[dict[str, Any]]]

    def over(self, bridge: Bridge, pieces: InternalRows, tasks: int) -> LogicalPlan:
        """Return the plan of what the function makes of pieces of rows, in a number of tasks."""
        tickets = dataframe(bridge.session, pulled.ticket_leaf(bridge.session, self.columns, pieces, tasks))
        function = arrow_function(self.exchange, self.columns, bridge.spark)
        assert self.exchange.schema is not None
        mapped = applied(tickets, PullTask(function, self.reports), self.exchange, self.exchange.schema)
        return with_output(analyzed_plan(bridge, mapped), self.node.output)
