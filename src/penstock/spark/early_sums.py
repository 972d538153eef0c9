"""Aggregates that pre-aggregate before a join with a table that filters no rows (``java/AggregateMover.java``).

Example
-------
>>> # before: Aggregate(c_name, sum(o_price)) of customer join orders on c_key = o_key
>>> # after:  Aggregate(c_name, sum(s)) of customer join Aggregate(o_key, sum(o_price) as s) of orders
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.spark import answers
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.plans import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.plans import LogicalNode


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
    """A table that can be joined after an aggregate has pre-aggregated the other rows.

    Parameters
    ----------
    table, largest
        The table, and the largest of the other tables.
    rows, bytes
        The table's size by Spark's statistics.
    keys
        The columns by which the other rows are pre-aggregated.
    bounds
        The numbers of distinct values of the keys that are not compared with the table.
    plan
        The aggregate in two steps, with the same output columns.
    """

    table: LogicalNode
    largest: LogicalNode
    rows: float
    bytes: float
    keys: tuple[str, ...]
    bounds: tuple[int, ...]
    read: tuple[RowsRead, ...]
    plan: LogicalPlan


def find_later_joins(aggregate: LogicalNode) -> list[LaterJoin]:
    """Return the tables that can be joined after an aggregate's pre-aggregation, with the plans for that."""
    bridge = aggregate._bridge
    answer = bridge.helper("AggregateMover").find(aggregate._handle)
    if answer is None:
        return []
    joins = []
    for number, facts in enumerate(answers.facts(answer)):
        table, largest, plan = (LogicalPlan(bridge, answer.handle(3 * number + offset)) for offset in range(3))
        join = LaterJoin(
            read_plan(table),
            read_plan(largest),
            facts["rows"],
            facts["bytes"],
            tuple(facts["keys"]),
            tuple(facts["bounds"]),
            tuple(RowsRead(source["rows"], _conditions(source)) for source in facts["read"]),
            plan,
        )
        joins.append(join)
    return joins


def _conditions(source: Mapping[str, Any]) -> tuple[Condition, ...]:
    return tuple(Condition(condition["kind"], tuple(condition["columns"])) for condition in source["conditions"])
