"""Pre-aggregation before a join with an unfiltered table (eager aggregation, ``AggregateMover.java``).

Before: Aggregate(c_name, sum(o_price)) of customer join orders on c_key = o_key
After:  Aggregate(c_name, sum(s)) of customer join Aggregate(o_key, sum(o_price) as s) of orders
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.bridge import answers
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.nodes import LogicalNode, read_plan


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows: the class of the expression in Spark, such as ``EqualTo``, and the ids of its columns."""

    kind: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """What an aggregate reads from a table: the estimated number of rows in the table, and the conditions on them."""

    rows: float
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class JoinPreAggregation:
    """A pre-aggregation of all tables that an aggregate joins, except `table`, which is joined afterwards."""

    table: LogicalNode
    largest: LogicalNode
    """The table with the most rows among the other tables."""
    rows: float
    bytes: float
    """The estimated rows and bytes of `table`, from Spark's statistics."""
    keys: tuple[str, ...]
    """The names of the columns by which the joined rows of the other tables are pre-aggregated."""
    bounds: tuple[int, ...]
    """The maximum number of distinct values of each column in `keys` that is not a key of the later join."""
    read: tuple[RowsRead, ...]
    """What the pre-aggregation reads from each of the other tables."""
    plan: LogicalPlan
    """The plan that replaces the aggregate, with the same output columns."""


def find_join_pre_aggregations(aggregate: LogicalNode) -> list[JoinPreAggregation]:
    """Return the possible pre-aggregations of an aggregate over joins."""
    bridge = aggregate._bridge
    answer = bridge.helper("AggregateMover").find(aggregate._handle)
    if answer is None:
        return []
    pre_aggregations = []
    for number, facts in enumerate(answers.facts(answer)):
        table, largest, plan = (LogicalPlan(bridge, answer.handle(3 * number + offset)) for offset in range(3))
        keys, bounds = tuple(facts["keys"]), tuple(facts["bounds"])
        read = tuple(
            RowsRead(other["rows"], tuple(Condition(c["kind"], tuple(c["columns"])) for c in other["conditions"]))
            for other in facts["read"]
        )
        tables, sizes = (read_plan(table), read_plan(largest)), (facts["rows"], facts["bytes"])
        pre_aggregations.append(JoinPreAggregation(*tables, *sizes, keys, bounds, read, plan))
    return pre_aggregations
