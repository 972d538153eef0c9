"""Writes the output of a vertex in the form that its consumers read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import NATIVE
from penstock.decisions import Choice, DecisionKind, Explanation, NodeRef, display_name
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
_VERIFY_NOTE = (
    "; execution.verify checks the exchanged rows but not the computed values, which execution.shadow compares with "
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
    """Run a plan, and write its rows in the form that the consumer of an edge reads."""
    plan = context.plan.edges[edge.id]
    match plan.write:
        case WriteKind.BROADCAST if plan.operator is not None:
            return broadcasts.run_planned(session, logical, edge)
        case WriteKind.SIDE if setup.slots > 1:
            logical = logical.hashed_in_slots(plan.keys, plan.spread_by, setup.subpartitions, setup.slots)
        case WriteKind.SIDE:
            logical = logical.hashed_by(plan.keys, setup.subpartitions)
        case WriteKind.OPERATOR if plan.operator is not None:
            logical = fragment.rebuild(plan.operator, {plan.child: logical})
        case _:
            logical = logical.rebalanced(setup.subpartitions)
    consumer = context.graph.node(edge.target_id).operator
    aggregates_first = isinstance(consumer, AggregateOperator) and consumer.aggregates_first
    native = None if context.native_memory is None else NativeParts(context.native_memory)
    try:
        with batches.limiting(session, logical, edge.source_id):
            return exchange.write(session, logical, pre_aggregated=aggregates_first, native=native)
    finally:
        if native is not None:
            native.close()
            _record_native(context, edge, native)


def _record_native(context: JobContext, edge: StreamEdge, native: NativeParts) -> None:
    """Record which parts of a vertex DuckDB has computed, and why Spark has computed the others."""
    node = NodeRef(edge.source_id, context.graph.node(edge.source_id).name)
    if native.failure is not None and not native.parts:
        context.decisions.record(Choice(DecisionKind.NATIVE, node, "Spark", native.failure))
    for part in native.parts:
        problem = part.declined or native.failure
        step = f"{display_name(part.table)} is read" if part.table else "what was exchanged as columns is computed"
        if problem is None:
            chosen, sentence = "DuckDB", f"{step} by DuckDB, in Spark's Python workers"
            sentence += _VERIFY_NOTE * context.verify
            reason = "every operation on its rows before the exchange gives the same values in DuckDB as in Spark"
        else:
            chosen, reason, sentence = "Spark", problem, f"{step} by Spark, not by DuckDB: {problem}"
        explanation = Explanation(sentence, NATIVE.key)
        context.decisions.record(Choice(DecisionKind.NATIVE, node, chosen, reason, explanation=explanation))
