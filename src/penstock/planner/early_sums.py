"""Sums up rows before a join where that makes them far fewer.

Before::

    orders   ──HASH(o_custkey)──┐
                                ├─▶ join ─▶ Aggregate(c_name, sum(price))
    customer ──HASH(c_custkey)──┘

After::

    orders ─▶ partial sums ──HASH(o_custkey)──▶ sums of each o_custkey ─┐
                                                                        ├─▶ join ─▶ Aggregate(c_name, sum of sums)
    customer ──HASH(c_custkey)──────────────────────────────────────────┘

Fewer rows are shuffled and joined. Known as eager aggregation: W. P. Yan and P.-A. Larson, VLDB 1995.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from penstock.config.options import EARLY_SUMS
from penstock.decisions import DecisionKind, Told
from penstock.graph.wording import listed, table_name
from penstock.planner.draft import Note
from penstock.spark.early_sums import later_joins
from penstock.spark.fragment import rebuild
from penstock.spark.plans import read_plan
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.early_sums import LaterJoin, RowsRead
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

_FEWER = 4.0
"""Rows must become so many times fewer, as both figures are estimates and summing up twice has its price.

TPC-H Q13, where they become ten times fewer, takes half as long; where they become twice as few, nothing is gained.
"""
_LEFT = {"IsNotNull": 1.0, "Not": 0.9, "EqualTo": 0.1, "In": 0.2, "InSet": 0.2}
"""The part of the rows that a condition is taken to leave, as in System R (P. G. Selinger and others, SIGMOD 1979)."""
_LEFT_BY_OTHERS = 1 / 3


def times_fewer(rows: float, bounds: Iterable[int], read: Iterable[RowsRead]) -> float:
    """Return how many times fewer rows become, as far as that can be told from sizes.

    Parameters
    ----------
    rows
        The rows of the table that is joined later: the other rows have at most so many of its keys.
    bounds
        How many values the other columns have that rows are summed up by.
    read
        The tables that the rows come from; the largest one tells how many there are.

    Examples
    --------
    >>> from penstock.spark.early_sums import Condition, RowsRead
    >>> times_fewer(100, [], [RowsRead(10_000, (Condition("EqualTo", ("7",)),))])
    10.0
    """
    tables = list(read)
    left: dict[tuple[str, ...], float] = {}
    for condition in (one for table in tables for one in table.conditions):
        part = _LEFT.get(condition.kind, _LEFT_BY_OTHERS)
        left[condition.columns] = min(part, left.get(condition.columns, 1.0))  # several of one column say much the same
    return prod(left.values()) * max(table.rows for table in tables) / max(rows * prod(bounds), 1.0)


def with_early_sums(plan: LogicalNode, broadcast_threshold: int) -> tuple[LogicalNode, list[Note]]:
    """Return a plan whose aggregates sum up rows before joins where that makes them far fewer, and what was decided.

    Parameters
    ----------
    plan
        An optimised plan.
    broadcast_threshold
        The bytes up to which a table is broadcast, so that the rows it is joined with are not shuffled; -1 for never.
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}
    notes = []
    for node in plan.walk():
        if node.name != "Aggregate" or not _is_over_join(node):
            continue
        found = [one for one in later_joins(node) if one.bytes > broadcast_threshold]
        best = max(found, key=_times_fewer, default=None)
        if best is not None and _times_fewer(best) >= _FEWER:
            replacements[node] = best.plan
            notes.append(_note(best))
    return (read_plan(rebuild(plan, replacements)) if replacements else plan), notes


def _is_over_join(aggregate: LogicalNode) -> bool:
    below = aggregate.children[0]
    while below.name == "Project":
        below = below.children[0]
    return below.name == "Join"


def _times_fewer(join: LaterJoin) -> float:
    return times_fewer(join.rows, join.bounds, join.read)


def _note(join: LaterJoin) -> Note:
    table, others, keys = _name(join.table), _name(join.largest), listed(join.keys, "columns")
    fewer = round(_times_fewer(join))
    reason = f"that makes its rows about {fewer:,} times fewer, by the sizes of both tables"
    sentence = f"{others} is summed up by {keys} before it is joined with {table}, as {reason}"
    told = Told(sentence, EARLY_SUMS.key, tables=(others, table))
    rows = round(max(one.rows for one in join.read))
    figures = {"rows": rows, f"rows of {table}": round(join.rows), "times fewer": fewer}
    chosen = f"by {keys}, before the join with {table} of about {show_count(round(join.rows), 'row')}"
    return Note(others, chosen, reason, DecisionKind.EARLY_AGGREGATION, figures, lambda *_: told)


def _name(table: LogicalNode) -> str:
    return table_name(table.description if table.files is None else table.files.name)
