"""Runs one vertex on Spark: builds its fragment from finished results, and writes what its consumers read."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.splits import OPEN_COST
from penstock.graph.partitioner import BroadcastPartitioner
from penstock.planner.plan import EdgePlan, WriteKind
from penstock.spark import exchange, files, fragment, jobs
from penstock.spark.dataframes import dataframe
from penstock.spark.exchange import BroadcastResult, StagedResult
from penstock.spark.jvm import class_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SinkJob
    from penstock.graph import JobVertex, StreamEdge, StreamGraph
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.packing import Range
    from penstock.spark.jvm import Bridge
    from penstock.spark.session import SessionPool

Result = StagedResult | BroadcastResult


@dataclass(frozen=True, slots=True)
class VertexSetup:
    """What was decided for a vertex before it runs.

    Parameters
    ----------
    ranges
        For every exchange group it reads, the ranges of subpartitions of its tasks; None where they cannot be cut.
    split_bytes
        For every file source in it, the split size.
    at_most
        For every source in it, a number of tasks not to exceed.
    subpartitions
        How many it writes.
    """

    ranges: Mapping[int, Sequence[Range] | None] = field(default_factory=dict)
    split_bytes: Mapping[int, int] = field(default_factory=dict)
    at_most: Mapping[int, int] = field(default_factory=dict)
    subpartitions: int = 1


@dataclass(frozen=True, slots=True)
class VertexRun:
    """What a vertex gave.

    Parameters
    ----------
    result
        What its consumers read; None of a sink.
    tasks
        How many tasks ran, -1 where nothing had to run yet.
    """

    result: Result | None
    tasks: int


class VertexRunner:
    """Runs vertices of one job; every call on a thread of its own.

    Parameters
    ----------
    bridge, sessions
        The user's session and its clones.
    plan
        The job's plan.
    graph
        Returns the stream graph as it is now.
    job_id
        Part of the names of Spark job groups.
    sinks
        The opened sinks, by node.
    """

    def __init__(
        self,
        bridge: Bridge,
        sessions: SessionPool,
        plan: JobPlan,
        graph: Any,
        job_id: str,
        sinks: Mapping[int, SinkJob],
    ) -> None:
        self._bridge = bridge
        self._sessions = sessions
        self._plan = plan
        self._graph = graph
        self._job_id = job_id
        self._sinks = sinks
        self._results: dict[int, Result] = {}
        self._lock = threading.Lock()

    def group_of(self, vertex: JobVertex) -> str:
        """Return the Spark job group of a vertex."""
        return f"penstock-{self._job_id}-{vertex.id}"

    def result_of(self, node_id: int) -> Result | None:
        """Return what the vertex that ends with a node has written, None before it has finished."""
        return self._results.get(node_id)

    def run(self, vertex: JobVertex, setup: VertexSetup, description: str) -> VertexRun:
        """Run a vertex to its end; return what it gave."""
        settings = {
            "spark.sql.shuffle.partitions": str(setup.subpartitions),
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(setup.subpartitions),
        }
        session = self._sessions.take(settings)
        scans = {
            node_id: self._sessions.take(files.split_settings(split_bytes, OPEN_COST))
            for node_id, split_bytes in setup.split_bytes.items()
        }
        with jobs.vertex_thread(self._bridge, session, self.group_of(vertex), description):
            graph: StreamGraph = self._graph()
            logical = self._fragment(vertex, setup, scans, graph)
            outgoing = graph.out_edges(vertex.tail_id)
            if not outgoing:
                run = VertexRun(None, self._to_sink(vertex, session, logical))
            else:
                result = self._write(session, logical, outgoing[0], setup.subpartitions)
                self._results[vertex.tail_id] = result
                run = VertexRun(result, result.tasks)
        if not isinstance(run.result, StagedResult) or run.result.stages:
            for used in (session, *scans.values()):  # else the plan still refers to their settings
                self._sessions.give_back(used)
        return run

    def _to_sink(self, vertex: JobVertex, session: Any, logical: Any) -> int:
        """Give the rows of a vertex to its sink; return the number of tasks that make them."""
        if class_name(logical) != "LogicalRDD":
            rdd = exchange.run_to_rdd(self._bridge, session, logical)
            logical = fragment.rdd_leaf(self._bridge, session, logical.output(), rdd)
        self._sinks[vertex.tail_id].write(dataframe(self._bridge, session, logical))
        return int(logical.rdd().getNumPartitions())

    def release(self) -> None:
        """Forget all results, so that Spark can clean their shuffle files."""
        self._results.clear()

    def _write(self, session: Any, logical: Any, edge: StreamEdge, subpartitions: int) -> Result:
        plan = self._plan.edges[edge.id]
        match plan.write:
            case WriteKind.BROADCAST if plan.operator is not None:
                build = self._plan.nodes[edge.target_id].build_side
                mode = exchange.broadcast_mode(self._bridge, session, plan.operator, build)
                return exchange.broadcast(self._bridge, session, logical, mode)
            case WriteKind.SIDE:
                logical = fragment.hashed(self._bridge, logical, plan.keys, subpartitions)
            case WriteKind.OPERATOR if plan.operator is not None:
                logical = fragment.rebuild(self._bridge, plan.operator, {plan.child: logical})
            case _:
                logical = fragment.rebalanced(self._bridge, logical, subpartitions)
        return exchange.write(self._bridge, session, logical)

    def _fragment(self, vertex: JobVertex, setup: VertexSetup, scans: Mapping[int, Any], graph: StreamGraph) -> Any:
        plans: dict[int, Any] = {}
        inside = set(vertex.node_ids)
        for node_id in vertex.node_ids:
            top = self._plan.nodes[node_id].top
            replacements: dict[Any, Any] = {}
            for edge in graph.in_edges(node_id):
                plan = self._plan.edges[edge.id]
                if edge.source_id in inside:
                    replacements[plan.child] = plans[edge.source_id]
                else:
                    place = plan.operator if plan.write is WriteKind.OPERATOR else plan.child
                    replacements[place] = self._leaf(edge, plan, setup)
            if node_id in self._plan.sources:
                plans[node_id] = self._source(node_id, setup, scans)
            elif top is None:
                (plans[node_id],) = replacements.values()
            else:
                plans[node_id] = fragment.rebuild(self._bridge, top, replacements)
        return plans[vertex.tail_id]

    def _source(self, node_id: int, setup: VertexSetup, scans: Mapping[int, Any]) -> Any:
        leaf = self._plan.sources[node_id].leaf.handle
        if node_id in scans:
            leaf = files.recut(self._bridge, leaf, scans[node_id])
        if node_id in setup.at_most:
            leaf = fragment.coalesced(self._bridge, leaf, setup.at_most[node_id])
        return leaf

    def _leaf(self, edge: StreamEdge, plan: EdgePlan, setup: VertexSetup) -> Any:
        result = self._results[edge.source_id]
        output = plan.output if plan.output is not None else plan.child.handle.output()
        if isinstance(result, BroadcastResult):
            return fragment.broadcast_leaf(self._bridge, output, result.stage)
        is_operator = plan.write is WriteKind.OPERATOR and plan.operator is not None
        if is_operator:
            output = plan.operator.handle.output()  # type: ignore[union-attr]
        ranges = None
        if not isinstance(edge.partitioner, BroadcastPartitioner):
            ranges = setup.ranges.get(self._plan.groups[edge.id])
        rdd = exchange.read(self._bridge, result, ranges)
        return fragment.rdd_leaf(
            self._bridge,
            self._bridge.session,
            output,
            rdd,
            hashed_by=plan.keys if ranges is not None else (),
            ordering=result.above.outputOrdering() if is_operator else None,
            statistics=result.statistics if result.is_plain_exchange else None,
        )
