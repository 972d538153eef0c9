"""Broadcasts join sides: relations that every executor can fetch."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from penstock.decisions import Choice, DecisionKind, NodeRef
from penstock.errors import first_line
from penstock.execution.growth import Growth
from penstock.graph import JoinOperator, Side
from penstock.graph.wording import called, join_name
from penstock.optimizer.graphs import is_broadcast
from penstock.sizing.coverage import check_rows
from penstock.sizing.packing import spread_by_count
from penstock.sizing.parallelism import subpartition_count
from penstock.spark import exchange
from penstock.spark.exchange import BroadcastResult
from penstock.spark.job_watch import JobWatch
from penstock.spark_errors import is_out_of_memory
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.execution.results import Result, ResultStore
    from penstock.graph import StreamEdge
    from penstock.spark.exchange import StagedResult
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

log = logging.getLogger("penstock.scheduler")

_READERS = 2
"""Tasks that read a result in order to broadcast it; more would have next to nothing to read."""
_Relation = tuple[int, tuple[str, ...]]
"""The node whose rows are in a relation, and the keys it is hashed by."""


class Broadcasts:
    """The broadcast relations of one job.

    Parameters
    ----------
    context, results
        The job, and what its vertices have written.
    """

    def __init__(self, context: JobContext, results: ResultStore) -> None:
        self._context = context
        self._results = results
        self._relations: dict[_Relation, BroadcastResult | None] = {}
        self._too_large: dict[_Relation, str] = {}
        self._lock = threading.Lock()

    def planned(self, session: Session, logical: LogicalPlan, edge: StreamEdge) -> Result:
        """Run a plan, and broadcast its rows to the join that an edge leads to.

        They are written for a shuffled join if they are far more than was planned with, or do not fit, unless the user
        asked for the broadcast.
        """
        plan = self._context.plan.edges[edge.id]
        assert plan.operator is not None
        keys = self._context.plan.nodes[edge.target_id].join_keys.get(_side(edge), ())
        mode = exchange.broadcast_mode(session, plan.operator, _side(edge), keys)
        rows = exchange.last_stage(session, logical)
        readers = self._context.graph.out_edges(edge.source_id)
        if any(self._join(one).side(_side(one)).hint == "broadcast" for one in readers):
            found = exchange.broadcast(rows, mode)
            assert found is not None  # nobody stops it
            return found
        growth = Growth(self._context.broadcasts.limit)
        try:
            relation = exchange.broadcast(rows, mode, JobWatch(self._context.bridge, growth.is_too_large))
            size, why, known = growth.size, growth.told, "about"
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            relation, why = None, f"it could not be broadcast: {first_line(error)}"
            size, known = max(growth.size, self._context.broadcasts.memory), "at least"
        if relation is not None:
            return relation
        self._warn(edge)
        for one in readers:
            self._came_otherwise(one, why)
        return exchange.write(session, logical.hashed_by(keys, self._subpartitions(edge, size, known)))

    def _subpartitions(self, edge: StreamEdge, size: int, known: str) -> int:
        """Return into how many subpartitions a side is written whose broadcast was stopped, and record it."""
        bounds, join = self._context.broadcasts, self._join(edge)
        other = join.side(_side(edge).other).source_bytes or 0
        number = subpartition_count(size + other, bounds.volume_per_task, bounds.most_subpartitions)
        reason = (
            f"{known} {show_bytes(size)}, by what was seen of its broadcast, and {show_bytes(other)} below the other "
            f"side; four subpartitions for each {show_bytes(bounds.volume_per_task)}, at most "
            f"{bounds.most_subpartitions}"
        )
        node = NodeRef(edge.source_id, self._context.graph.node(edge.source_id).name)
        self._context.decisions.record(
            Choice(DecisionKind.SUBPARTITIONS, node, number, reason, {"bytes": size, "bytes of the other side": other})
        )
        return number

    def relation(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | None:
        """Return a measured result as a relation for a join, made once; None if it does not fit after all."""
        name = self._name(edge)
        with self._lock:
            if name not in self._relations:
                self._relations[name] = self._made(edge, result)
            relation = self._relations[name]
        if relation is None:
            self._came_otherwise(edge, f"it could not be broadcast: {self._too_large[name]}")
        elif self._context.verify and result.is_plain_exchange:
            # Spark counts the rows of a task that ran again, as its executor was lost, more than once.
            there = result.rows if result.rows == relation.rows else exchange.count_rows(result)
            check_rows(f"the broadcast {edge.id}", there, relation.rows)
        return relation

    def is_relation(self, edge: StreamEdge) -> bool:
        """Whether a join's side is a broadcast relation by now."""
        if not is_broadcast(edge):
            return False
        is_written_so = isinstance(self._results.get(edge.source_id), BroadcastResult)
        return is_written_so or self._relations.get(self._name(edge)) is not None

    def release(self) -> None:
        """Forget all relations, so that Spark can clean them."""
        self._relations.clear()

    def _made(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | None:
        session, build = self._context.bridge.session, _side(edge)
        node = self._context.plan.nodes[edge.target_id]
        assert node.top is not None
        mode = exchange.broadcast_mode(session, node.top, build, node.join_keys[build])
        try:
            ranges = spread_by_count(result.subpartitions, min(_READERS, result.subpartitions))
            return exchange.broadcast_staged(result, mode, ranges)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._warn(edge)
            self._too_large[self._name(edge)] = first_line(error)
            return None

    def _warn(self, edge: StreamEdge) -> None:
        join, build = self._join(edge), _side(edge)
        log.warning("%s: %s could not be broadcast, and is shuffled", join_name(join, build.other), called(join, build))

    def _came_otherwise(self, edge: StreamEdge, why: str) -> None:
        """Record that a side is not broadcast after all."""
        build = _side(edge)
        self._context.decisions.came_otherwise(
            DecisionKind.BROADCAST,
            NodeRef(edge.target_id, self._context.graph.node(edge.target_id).name),
            f"{called(self._join(edge), build)} is shuffled",
            why,
            lambda decision: decision.chosen == build,
        )

    def _join(self, edge: StreamEdge) -> JoinOperator:
        operator = self._context.graph.node(edge.target_id).operator
        assert isinstance(operator, JoinOperator)  # nothing else reads a relation
        return operator

    def _name(self, edge: StreamEdge) -> _Relation:
        keys = self._context.plan.nodes[edge.target_id].join_keys[_side(edge)]
        return edge.source_id, tuple(key.key for key in keys)


def _side(edge: StreamEdge) -> Side:
    return Side.of_input(edge.type_number)
