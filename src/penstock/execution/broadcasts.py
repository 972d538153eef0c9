"""Broadcast join sides: relations that every executor can fetch."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.decisions.log import Choice, DecisionKind, NodeRef
from penstock.errors import first_line
from penstock.graph import JoinOperator, Side, StreamEdge
from penstock.graph.labels import join_name, side_name
from penstock.optimizer.graphs import is_broadcast
from penstock.optimizer.strategy import PartialResult
from penstock.sizing.coverage import check_rows
from penstock.sizing.packing import spread_by_count
from penstock.sizing.parallelism import subpartition_count
from penstock.spark.errors import is_out_of_memory
from penstock.spark.run import exchange
from penstock.spark.run.exchange import BroadcastResult, StagedResult
from penstock.spark.run.job_watch import JobWatch

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.execution.results import Result, ResultStore
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.jobs import StageFigures, StageRun

log = logging.getLogger("penstock.scheduler")


class Growth:
    """Progress of a running broadcast, which may have `limit` compressed bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._so_far = PartialResult(0, 0, 0, None)

    def is_too_large(self, stage: StageRun, figures: StageFigures) -> bool:
        """Whether its size exceeds the limit, or is expected to."""
        self._so_far = PartialResult(stage.completed, stage.tasks, figures.returned, None)
        return self._so_far.exceeds(self._limit)

    @property
    def size(self) -> int:
        """The estimated total bytes, at least the limit."""
        progress = self._so_far
        return max(self._limit, progress.size * progress.tasks // max(progress.done, 1))

    @property
    def stop_reason(self) -> str:
        """The reason why it was stopped, half a sentence."""
        progress = self._so_far
        returned = f"{progress.done} of its {progress.tasks} tasks had returned {show_bytes(progress.size)}"
        total = progress.estimated_size
        estimate = "" if total is None else f", an estimated {show_bytes(total)} in all"
        return f"the broadcast was stopped: {returned}{estimate} (limit {show_bytes(self._limit)})"


_READERS = 2
"""Tasks that read a result in order to broadcast it; with more, most would read next to nothing."""
_RelationKey = tuple[int, tuple[str, ...]]
"""The node whose rows a relation holds, and the keys that it is hashed by."""


@dataclass(eq=False)
class Broadcasts:
    """The broadcast relations of a job."""

    _context: JobContext
    _results: ResultStore
    _relations: dict[_RelationKey, BroadcastResult | None] = field(default_factory=dict, init=False)
    _too_large: dict[_RelationKey, str] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run_planned(self, session: Session, logical: LogicalPlan, edge: StreamEdge) -> Result:
        """Run a plan, and broadcast its rows to the join that an edge leads to.

        If the rows are far larger than estimated, or do not fit in memory, they are written for a shuffled join
        instead, unless the user has requested the broadcast by a hint.
        """
        plan = self._context.plan.edges[edge.id]
        assert plan.operator is not None
        keys = self._context.plan.nodes[edge.target_id].join_keys.get(_side(edge), ())
        mode = exchange.broadcast_mode(session, plan.operator, _side(edge), keys)
        rows = exchange.run_all_but_last_stage(session, logical)
        consumers = self._context.graph.out_edges(edge.source_id)
        if any(self._join(consumer).side(_side(consumer)).hint == "broadcast" for consumer in consumers):
            relation = exchange.broadcast(rows, mode)
            assert relation is not None  # only a watch can stop it
            return relation
        growth = Growth(self._context.broadcasts.limit)
        try:
            relation = exchange.broadcast(rows, mode, JobWatch(self._context.bridge, growth.is_too_large))
            size, reason, qualifier = growth.size, growth.stop_reason, "about"
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            relation, reason = None, f"it could not be broadcast: {first_line(error)}"
            size, qualifier = max(growth.size, self._context.broadcasts.memory), "at least"
        if relation is not None:
            return relation
        self._warn(edge)
        for consumer in consumers:
            self._record_fallback(consumer, reason)
        return exchange.write(session, logical.hashed_by(keys, self._subpartitions(edge, size, qualifier)))

    def _subpartitions(self, edge: StreamEdge, size: int, qualifier: str) -> int:
        """Choose and record the number of subpartitions for a side of about (or at least) `size` bytes."""
        bounds, join = self._context.broadcasts, self._join(edge)
        other = join.side(_side(edge).other).source_bytes or 0
        number = subpartition_count(size + other, bounds.volume_per_task, bounds.most_subpartitions)
        reason = (
            f"{qualifier} {show_bytes(size)}, estimated from its broadcast, and {show_bytes(other)} in the sources "
            f"of the other side; four subpartitions for each {show_bytes(bounds.volume_per_task)}, at most "
            f"{bounds.most_subpartitions}"
        )
        node = NodeRef(edge.source_id, self._context.graph.node(edge.source_id).name)
        self._context.decisions.record(
            Choice(DecisionKind.SUBPARTITIONS, node, number, reason, {"bytes": size, "bytes of the other side": other})
        )
        return number

    def relation(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | None:
        """Return a finished result as a relation for a join, built once; None if it does not fit in memory."""
        key = self._relation_key(edge)
        with self._lock:
            if key not in self._relations:
                self._relations[key] = self._build(edge, result)
            relation = self._relations[key]
        if relation is None:
            self._record_fallback(edge, f"it could not be broadcast: {self._too_large[key]}")
        elif self._context.verify and result.is_plain_exchange:
            # Spark counts rows twice if a task ran again because its executor was lost.
            rows = result.rows if result.rows == relation.rows else exchange.count_rows(result)
            check_rows(f"the broadcast {edge.id}", rows, relation.rows)
        return relation

    def is_relation(self, edge: StreamEdge) -> bool:
        """Whether a join's side is already a broadcast relation."""
        if not is_broadcast(edge):
            return False
        is_result = isinstance(self._results.get(edge.source_id), BroadcastResult)
        return is_result or self._relations.get(self._relation_key(edge)) is not None

    def release(self) -> None:
        """Release all relations, so that Spark can clean them up."""
        self._relations.clear()

    def _build(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | None:
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
            self._too_large[self._relation_key(edge)] = first_line(error)
            return None

    def _warn(self, edge: StreamEdge) -> None:
        join, build = self._join(edge), _side(edge)
        log.warning(
            "%s: %s could not be broadcast and is shuffled", join_name(join, build.other), side_name(join, build)
        )

    def _record_fallback(self, edge: StreamEdge, reason: str) -> None:
        build = _side(edge)
        self._context.decisions.record_fallback(
            DecisionKind.BROADCAST,
            NodeRef(edge.target_id, self._context.graph.node(edge.target_id).name),
            f"{side_name(self._join(edge), build)} is shuffled",
            reason,
            lambda decision: decision.chosen == build,
        )

    def _join(self, edge: StreamEdge) -> JoinOperator:
        operator = self._context.graph.node(edge.target_id).operator
        assert isinstance(operator, JoinOperator)  # only joins read relations
        return operator

    def _relation_key(self, edge: StreamEdge) -> _RelationKey:
        keys = self._context.plan.nodes[edge.target_id].join_keys[_side(edge)]
        return edge.source_id, tuple(key.key for key in keys)


def _side(edge: StreamEdge) -> Side:
    return Side.of_input(edge.type_number)
