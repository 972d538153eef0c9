"""Writes what the consumers of a vertex read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.graph import AggregateOperator
from penstock.planner.plan import WriteKind
from penstock.spark import exchange, fragment

if TYPE_CHECKING:
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.context import JobContext
    from penstock.execution.reads import VertexSetup
    from penstock.execution.results import Result
    from penstock.graph import StreamEdge
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan


def write_output(
    context: JobContext,
    broadcasts: Broadcasts,
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
    return exchange.write(session, logical, pre_aggregated=aggregates_first)
