"""Broadcasts join sides as relations (hash tables), which every executor can fetch."""

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
from penstock.spark.run import exchange, verification
from penstock.spark.run.exchange import BroadcastResult, StagedResult
from penstock.spark.run.jobs import JobWatch, StageFigures, StageRun

if TYPE_CHECKING:
    from penstock.execution.context import JobContext
    from penstock.execution.results import Result, ResultStore
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan

log = logging.getLogger("penstock.scheduler")


class BroadcastProgress:
    """Progress of a running broadcast, which is stopped if it exceeds `limit` compressed bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._partial = PartialResult(0, 0, 0, None)

    def is_too_large(self, stage: StageRun, figures: StageFigures) -> bool:
        """Record the progress of a stage; return whether its output exceeds the limit, or is estimated to exceed it."""
        self._partial = PartialResult(stage.completed, stage.tasks, figures.returned, None)
        return self._partial.exceeds(self._limit)

    @property
    def size(self) -> int:
        """The estimated compressed bytes of all tasks; at least the limit, which a stopped broadcast exceeds."""
        progress = self._partial
        return max(self._limit, progress.size * progress.tasks // max(progress.done, 1))

    @property
    def stop_reason(self) -> str:
        """The reason why the broadcast was stopped, as a clause."""
        progress = self._partial
        returned = f"{progress.done} of its {progress.tasks} tasks had returned {show_bytes(progress.size)}"
        total = progress.estimated_size
        estimate = "" if total is None else f", an estimated {show_bytes(total)} in all"
        return f"the broadcast was stopped: {returned}{estimate} (limit {show_bytes(self._limit)})"


_READER_TASKS = 2
"""The number of tasks that read a result to broadcast it; with a task per core, most would read very little."""
_RelationKey = tuple[int, tuple[str, ...]]
"""The id of the node whose rows a relation contains, and the keys of the relation's hash table."""


@dataclass(eq=False)
class Broadcasts:
    """The broadcast relations of a job."""

    _context: JobContext
    _results: ResultStore
    _relations: dict[_RelationKey, BroadcastResult | str] = field(default_factory=dict, init=False)
    """The relations, or texts that say why they do not fit in memory."""
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run_and_broadcast(self, session: Session, logical: LogicalPlan, edge: StreamEdge) -> Result:
        """Run a plan, and broadcast its rows to the join that an edge leads to.

        If the rows exceed the limit of `BroadcastBounds`, or do not fit in memory, they are written for a shuffled join
        instead, unless the user has requested the broadcast by a hint.
        """
        plan = self._context.plan.edges[edge.id]
        assert plan.operator is not None
        keys = self._context.plan.nodes[edge.target_id].join_keys.get(_side(edge), ())
        mode = exchange.broadcast_mode(session, plan.operator, _side(edge), keys)
        rows = exchange.run_for_broadcast(session, logical)  # a plan whose last stage `broadcast` runs
        consumers = self._context.graph.out_edges(edge.source_id)
        if any(self._join(consumer).side(_side(consumer)).hint == "broadcast" for consumer in consumers):
            relation = exchange.broadcast(rows, mode)
            assert relation is not None  # only a `JobWatch` can stop a broadcast
            return relation
        progress = BroadcastProgress(self._context.broadcast_bounds.limit)
        try:
            relation = exchange.broadcast(rows, mode, JobWatch(self._context.bridge, progress.is_too_large))
            size, reason, qualifier = progress.size, progress.stop_reason, "about"  # used if it was stopped
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            relation, reason = None, f"it could not be broadcast: {first_line(error)}"
            size, qualifier = max(progress.size, self._context.broadcast_bounds.memory), "at least"
        if relation is not None:
            return relation
        self._warn_of_fallback(edge)
        for consumer in consumers:
            self._record_fallback(consumer, reason)
        return exchange.write(session, logical.hashed_by(keys, self._subpartitions(edge, size, qualifier)))

    def _subpartitions(self, edge: StreamEdge, size: int, qualifier: str) -> int:
        """Choose and record the number of subpartitions of a side; the reason begins with `qualifier` and `size`."""
        bounds, join = self._context.broadcast_bounds, self._join(edge)
        other_bytes = join.side(_side(edge).other).source_bytes or 0
        number = subpartition_count(size + other_bytes, bounds.volume_per_task, bounds.max_subpartitions)
        reason = (
            f"{qualifier} {show_bytes(size)}, estimated from its broadcast, and {show_bytes(other_bytes)} in the "
            f"sources of the other side; four subpartitions for each {show_bytes(bounds.volume_per_task)}, at most "
            f"{bounds.max_subpartitions}"
        )
        node = NodeRef(edge.source_id, self._context.graph.node(edge.source_id).name)
        figures = {"bytes": size, "bytes of the other side": other_bytes}
        self._context.decisions.record(Choice(DecisionKind.SUBPARTITIONS, node, number, reason, figures))
        return number

    def relation(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | None:
        """Return a result as the relation for the join of an edge, built once; None if it does not fit in memory."""
        key = self._relation_key(edge)
        with self._lock:
            if key not in self._relations:
                self._relations[key] = self._build_relation(edge, result)
            relation = self._relations[key]
        if isinstance(relation, str):
            self._record_fallback(edge, f"it could not be broadcast: {relation}")
            return None
        if self._context.verify and result.is_plain_exchange:
            # `result.rows` is too high if tasks were rerun after the loss of an executor; then the rows are counted.
            rows = result.rows if result.rows == relation.rows else verification.count_rows(result.plan.rows())
            check_rows(f"the broadcast {edge.id}", rows, relation.rows)
        return relation

    def is_relation(self, edge: StreamEdge) -> bool:
        """Whether the join side that an edge leads to is already a broadcast relation."""
        if not is_broadcast(edge):
            return False
        is_broadcast_result = isinstance(self._results.get(edge.source_id), BroadcastResult)
        return is_broadcast_result or isinstance(self._relations.get(self._relation_key(edge)), BroadcastResult)

    def release(self) -> None:
        """Release all relations, so that Spark can clean them up."""
        self._relations.clear()

    def _build_relation(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | str:
        session, build = self._context.bridge.session, _side(edge)
        node = self._context.plan.nodes[edge.target_id]
        assert node.top is not None
        mode = exchange.broadcast_mode(session, node.top, build, node.join_keys[build])
        try:
            ranges = spread_by_count(result.subpartitions, min(_READER_TASKS, result.subpartitions))
            return exchange.broadcast_staged(result, mode, ranges)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._warn_of_fallback(edge)
            return first_line(error)

    def _warn_of_fallback(self, edge: StreamEdge) -> None:
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
