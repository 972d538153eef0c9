"""Writes what the consumers of a vertex read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import NATIVE
from penstock.decisions import Choice, DecisionKind, NodeRef, Told, plain
from penstock.graph import AggregateOperator
from penstock.planner.plan import WriteKind
from penstock.spark import exchange, fragment
from penstock.spark.native_parts import NativeParts

if TYPE_CHECKING:
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.context import JobContext
    from penstock.execution.python_batches import PythonBatches
    from penstock.execution.reads import VertexSetup
    from penstock.execution.results import Result
    from penstock.graph import StreamEdge
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan
_CHECKED = (
    "; execution.verify checks the rows that it exchanges, not what it computes, which execution.shadow compares with "
    "plain Spark"
)


def write_output(
    context: JobContext,
    broadcasts: Broadcasts,
    batches: PythonBatches,
    session: Session,
    logical: LogicalPlan,
    edge: StreamEdge,
    setup: VertexSetup,
) -> Result:
    """Run a plan, and write its rows as the consumer at the end of an edge wants to read them."""
    plan = context.plan.edges[edge.id]
    match plan.write:
        case WriteKind.BROADCAST if plan.operator is not None:
            return broadcasts.planned(session, logical, edge)
        case WriteKind.SIDE if setup.slots > 1:
            logical = logical.hashed_in_slots(plan.keys, plan.spread_by, setup.subpartitions, setup.slots)
        case WriteKind.SIDE:
            logical = logical.hashed_by(plan.keys, setup.subpartitions)
        case WriteKind.OPERATOR if plan.operator is not None:
            logical = fragment.rebuild(plan.operator, {plan.child: logical})
        case _:
            logical = logical.rebalanced(setup.subpartitions)
    reader = context.graph.node(edge.target_id).operator
    aggregates_first = isinstance(reader, AggregateOperator) and reader.aggregates_first
    native = None if context.native_memory is None else NativeParts(context.native_memory)
    try:
        with batches.suited(session, logical, edge.source_id):
            return exchange.write(session, logical, pre_aggregated=aggregates_first, native=native)
    finally:
        if native is not None:
            native.close()
            _record(context, edge, native)


def _record(context: JobContext, edge: StreamEdge, native: NativeParts) -> None:
    """Record which parts of a vertex DuckDB has computed, and why not the others."""
    node = NodeRef(edge.source_id, context.graph.node(edge.source_id).name)
    if native.failure is not None and not native.parts:
        context.decisions.record(Choice(DecisionKind.NATIVE, node, "Spark", native.failure))
    for part in native.parts:
        why_not = part.declined or native.failure
        what = f"{plain(part.table)} is read" if part.table else "what was exchanged as columns is computed"
        if why_not is None:
            chosen, told = "DuckDB", f"{what} by DuckDB, in Spark's Python workers"
            told += _CHECKED * context.verify
            why = "all that is done to its rows before the exchange is known to give what Spark gives"
        else:
            chosen, why, told = "Spark", why_not, f"{what} by Spark, not by DuckDB: {why_not}"
        context.decisions.record(Choice(DecisionKind.NATIVE, node, chosen, why, told=Told(told, NATIVE.key)))
