"""Aggregates that sum up their rows before a join with a table that leaves none out (``java/AggregateMover.java``).

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
    """A condition that rows must meet.

    Parameters
    ----------
    kind
        What Spark calls it, such as ``EqualTo``.
    columns
        The columns that it is about, by their ids.
    """

    kind: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowsRead:
    """Rows of a table that an aggregate sums up.

    Parameters
    ----------
    rows
        About how many rows the table has.
    conditions
        What they must meet.
    """

    rows: float
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class LaterJoin:
    """A table that can be joined once an aggregate has summed up the other rows.

    Parameters
    ----------
    table, largest
        The table, and the largest of the others.
    rows, bytes
        What it holds, as far as Spark's statistics tell.
    keys
        The columns that the other rows are summed up by.
    bounds
        How many values those of them have that are not compared with the table.
    read
        The other tables.
    plan
        The aggregate in two steps. Its columns are the same.
    """

    table: LogicalNode
    largest: LogicalNode
    rows: float
    bytes: float
    keys: tuple[str, ...]
    bounds: tuple[int, ...]
    read: tuple[RowsRead, ...]
    plan: LogicalPlan


def later_joins(aggregate: LogicalNode) -> list[LaterJoin]:
    """Return the tables that an aggregate's rows can be joined with once they are summed up, and the plans for that."""
    bridge = aggregate._bridge
    answer = bridge.helper("AggregateMover").find(aggregate._handle)
    if answer is None:
        return []
    found = []
    for number, facts in enumerate(answers.facts(answer)):
        table, largest, plan = (LogicalPlan(bridge, answer.handle(3 * number + place)) for place in range(3))
        read = tuple(RowsRead(one["rows"], _conditions(one)) for one in facts["read"])
        keys, bounds = tuple(facts["keys"]), tuple(facts["bounds"])
        known = read_plan(table), read_plan(largest), facts["rows"], facts["bytes"], keys, bounds, read, plan
        found.append(LaterJoin(*known))
    return found


def _conditions(read: Mapping[str, Any]) -> tuple[Condition, ...]:
    return tuple(Condition(one["kind"], tuple(one["columns"])) for one in read["conditions"])
