"""Aggregates that pre-aggregate before a join with a table that filters no rows (``AggregateMover.java``).

Example
-------
>>> # before: Aggregate(c_name, sum(o_price)) of customer join orders on c_key = o_key
>>> # after:  Aggregate(c_name, sum(s)) of customer join Aggregate(o_key, sum(o_price) as s) of orders
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.spark.bridge import answers
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.nodes import LogicalNode, read_plan


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows, with Spark's name of it, such as ``EqualTo``, and the ids of its columns."""

    kind: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """The rows of a table that an aggregate reads: their estimated number, and their conditions."""

    rows: float
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class LaterJoin:
    """A table that can be joined after an aggregate has pre-aggregated the other rows."""

    table: LogicalNode
    largest: LogicalNode
    """The table, and the largest of the other tables."""
    rows: float
    bytes: float
    """The table's size by Spark's statistics."""
    keys: tuple[str, ...]
    """The columns by which the other rows are pre-aggregated."""
    bounds: tuple[int, ...]
    """The numbers of distinct values of the keys that are not compared with the table."""
    read: tuple[RowsRead, ...]
    plan: LogicalPlan
    """The aggregate in two steps, with the same output columns."""


def find_later_joins(aggregate: LogicalNode) -> list[LaterJoin]:
    """Return the tables that can be joined after an aggregate's pre-aggregation, with the plans for that."""
    bridge = aggregate._bridge
    answer = bridge.helper("AggregateMover").find(aggregate._handle)
    if answer is None:
        return []
    joins = []
    for number, facts in enumerate(answers.facts(answer)):
        table, largest, plan = (LogicalPlan(bridge, answer.handle(3 * number + offset)) for offset in range(3))
        keys, bounds = tuple(facts["keys"]), tuple(facts["bounds"])
        read = tuple(
            RowsRead(source["rows"], tuple(Condition(c["kind"], tuple(c["columns"])) for c in source["conditions"]))
            for source in facts["read"]
        )
        sizes = facts["rows"], facts["bytes"]
        joins.append(LaterJoin(read_plan(table), read_plan(largest), *sizes, keys, bounds, read, plan))
    return joins
