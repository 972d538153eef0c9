"""Pre-aggregates rows before a join if that leaves far fewer rows.

Before::

    orders   ──HASH(o_custkey)──┐
                                ├─▶ join ─▶ Aggregate(c_name, sum(price))
    customer ──HASH(c_custkey)──┘

After::

    orders ─▶ partial sums ──HASH(o_custkey)──▶ sums of each o_custkey ─┐
                                                                        ├─▶ join ─▶ Aggregate(c_name, sum of sums)
    customer ──HASH(c_custkey)──────────────────────────────────────────┘

Fewer rows are shuffled and joined. This is eager aggregation: W. P. Yan and P.-A. Larson, VLDB 1995.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.config.options import PRE_AGGREGATION
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph.labels import listed, table_name
from penstock.planner.draft import DraftChoice
from penstock.spark.plans.fragment import rebuild
from penstock.spark.plans.join_pre_aggregation import JoinPreAggregation, RowsRead, find_join_pre_aggregations
from penstock.spark.plans.nodes import LogicalNode, read_plan

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

_MIN_REDUCTION = 4.0
"""The minimum reduction factor of the rows, because it is an estimate and aggregating twice has a cost.

TPC-H Q13 has a factor of 10 and takes half the time. A factor of 2 gains nothing.
"""
_SELECTIVITY = {"IsNotNull": 1.0, "Not": 0.9, "EqualTo": 0.1, "In": 0.2, "InSet": 0.2}
"""The assumed selectivity of conditions, as in System R (P. G. Selinger and others, SIGMOD 1979)."""
_DEFAULT_SELECTIVITY = 1 / 3


def reduction_factor(rows: float, bounds: Iterable[int], read: Iterable[RowsRead]) -> float:
    """Estimate the factor by which a pre-aggregation reduces rows, from the sizes of tables.

    `rows` is the number of rows of the table that is joined later, an upper bound of the number of distinct join keys.
    `bounds` are upper bounds of the numbers of distinct values of the other grouping columns. `read` are the tables
    that the aggregated rows come from; the join of these tables is assumed to have as many rows as the largest.

    >>> from penstock.spark.plans.join_pre_aggregation import Condition, RowsRead
    >>> reduction_factor(100, [], [RowsRead(10_000, (Condition("EqualTo", ("7",)),))])
    10.0
    """
    tables = list(read)
    selectivities: dict[tuple[str, ...], float] = {}
    for condition in (condition for table in tables for condition in table.conditions):
        selectivity = _SELECTIVITY.get(condition.kind, _DEFAULT_SELECTIVITY)
        # Conditions on the same columns are correlated, so only the most selective condition is used.
        selectivities[condition.columns] = min(selectivity, selectivities.get(condition.columns, 1.0))
    return prod(selectivities.values()) * max(table.rows for table in tables) / max(rows * prod(bounds), 1.0)


def with_pre_aggregation(plan: LogicalNode, broadcast_threshold: int) -> tuple[LogicalNode, list[DraftChoice]]:
    """Return a plan that pre-aggregates rows before joins if that reduces them enough, and the decisions.

    Tables of up to `broadcast_threshold` bytes are broadcast: rows that join them are not shuffled or pre-aggregated.
    """
    replacements: dict[LogicalNode, LogicalPlan] = {}
    choices = []
    for node in plan.walk():
        if node.name != "Aggregate" or not _is_over_join(node):
            continue
        candidates = [join for join in find_join_pre_aggregations(node) if join.bytes > broadcast_threshold]
        best = max(candidates, key=_reduction, default=None)
        if best is not None and _reduction(best) >= _MIN_REDUCTION:
            replacements[node] = best.plan
            choices.append(_choice(best))
    return (read_plan(rebuild(plan, replacements)) if replacements else plan), choices


def _is_over_join(aggregate: LogicalNode) -> bool:
    below = aggregate.children[0]
    while below.name == "Project":
        below = below.children[0]
    return below.name == "Join"


def _reduction(join: JoinPreAggregation) -> float:
    return reduction_factor(join.rows, join.bounds, join.read)


def _choice(join: JoinPreAggregation) -> DraftChoice:
    joined_table, aggregated, keys = _name(join.table), _name(join.largest), listed(join.keys, "columns")
    factor = round(_reduction(join))
    reason = f"this reduces its rows by a factor of about {factor:,}, estimated from the sizes of both tables"
    sentence = f"{aggregated} is pre-aggregated by {keys} before the join with {joined_table}, as {reason}"
    explanation = Explanation(sentence, PRE_AGGREGATION.key, tables=(aggregated, joined_table))
    rows = round(max(source.rows for source in join.read))
    figures = {"rows": rows, f"rows of {joined_table}": round(join.rows), "times fewer": factor}
    chosen = f"by {keys}, before the join with {joined_table} of about {show_count(round(join.rows), 'row')}"
    return DraftChoice(aggregated, chosen, reason, DecisionKind.EARLY_AGGREGATION, figures, lambda *_: explanation)


def _name(table: LogicalNode) -> str:
    return table_name(table.description if table.files is None else table.files.name)
