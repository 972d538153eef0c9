"""Runs one vertex on Spark: builds its fragment from finished results, and writes what its consumers read."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.config.options import VERIFY
from penstock.connectors.base import CountableSplits
from penstock.connectors.splits import OPEN_COST
from penstock.decisions import DecisionKind
from penstock.errors import first_line
from penstock.graph.partitioner import AdaptiveRebalancePartitioner, AdaptiveRescalePartitioner
from penstock.optimizer import ResultInfo
from penstock.optimizer.dynamic_filtering import FILTERS
from penstock.optimizer.early_aggregation import SUMS_FIRST
from penstock.optimizer.graphs import is_broadcast, sides
from penstock.optimizer.join_algorithm import HASH_SIDE
from penstock.optimizer.join_order import SEQUENCE
from penstock.optimizer.joins import NUMBER
from penstock.optimizer.skew import LARGEST
from penstock.planner.plan import EdgePlan, WriteKind
from penstock.scheduler.filtering import KeyFilters
from penstock.scheduler.packing import SizeRow, pack_exactly, spread_by_count
from penstock.scheduler.verification import check_ranges, check_rows, check_slices, check_splits
from penstock.spark import exchange, files, fragment, jobs, verification
from penstock.spark.catalyst import expression_key
from penstock.spark.dataframes import dataframe
from penstock.spark.exchange import BroadcastResult, StagedResult
from penstock.spark.jvm import class_name
from penstock.spark.limits import split_limits, with_limits
from penstock.spark_errors import is_failed_last_stage, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from penstock.config import Configuration
    from penstock.connectors.base import KeyFilter, SinkJob, StageReport
    from penstock.decisions import DecisionLog
    from penstock.graph import JobVertex, StreamEdge, StreamGraph
    from penstock.optimizer.join_order import JoinSequence
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.packing import Range
    from penstock.scheduler.skew_cut import Slice
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode
    from penstock.spark.session import SessionPool

log = logging.getLogger("penstock.scheduler")

_SAMPLE = 4 << 20
"""Bytes of an exchange that are written to learn what they take on disk."""
Result = StagedResult | BroadcastResult
_ATTEMPTS = 4
"""How often a stage whose tasks run together is tried at the end of a query; elsewhere Spark does so itself."""
_OPEN_FILES = 8
"""Files that a task writes side by side; what belongs into further ones is sorted first."""
_READERS = 2
"""Tasks that read a result in order to broadcast it."""


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
    slices
        For every edge whose subpartitions are split, or that must meet such a one, what each task reads, bit by bit.
    slots
        How many parts each subpartition is written in; rows with equal keys lie in any of them.
    shared
        Whether inputs that are cut alike are read as they lie by operators of several inputs.
    """

    ranges: Mapping[int, Sequence[Range] | None] = field(default_factory=dict)
    split_bytes: Mapping[int, int] = field(default_factory=dict)
    at_most: Mapping[int, int] = field(default_factory=dict)
    subpartitions: int = 1
    slices: Mapping[str, Sequence[tuple[Slice, ...]]] = field(default_factory=dict)
    slots: int = 1
    shared: bool = True


@dataclass(frozen=True, slots=True)
class VertexRun:
    """What a vertex gave.

    Parameters
    ----------
    result
        What its consumers read; None of a sink.
    tasks
        How many tasks ran, -1 where nothing had to run yet.
    report
        What a stage behind a sink says that it did.
    """

    result: Result | None
    tasks: int
    report: StageReport | None = None


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
    decisions
        Takes what came otherwise than it was decided.
    """

    def __init__(
        self,
        bridge: Bridge,
        sessions: SessionPool,
        plan: JobPlan,
        config: Configuration,
        graph: Callable[[], StreamGraph],
        job_id: str,
        sinks: Mapping[int, SinkJob],
        decisions: DecisionLog,
    ) -> None:
        self._bridge = bridge
        self._decisions = decisions
        self._sessions = sessions
        self._plan = plan
        self._graph = graph
        self._job_id = job_id
        self._sinks = sinks
        self._results: dict[int, Result] = {}
        self._tables: dict[tuple[int, str], BroadcastResult | None] = {}
        self._too_large: dict[tuple[int, str], str] = {}
        self._verify = config.flag(VERIFY)
        self._filters = KeyFilters(bridge, plan, config, graph, self.result_of, self._table, decisions)
        self._lock = threading.Lock()

    def group_of(self, vertex: JobVertex) -> str:
        """Return the Spark job group of a vertex."""
        return f"penstock-{self._job_id}-{vertex.id}"

    def result_of(self, node_id: int) -> Result | None:
        """Return what the vertex that ends with a node has written, None before it has finished."""
        return self._results.get(node_id)

    def _thread(self, session: Any, group: str, description: str) -> AbstractContextManager[None]:
        return jobs.vertex_thread(self._bridge, session, self._sessions.properties, group, description)

    def fetch_filters(self, vertex: JobVertex, description: str) -> dict[int, KeyFilter]:
        """Fetch the keys that filter nodes of a vertex; return what its sources may know of them."""
        graph = self._graph()
        nodes = [node for node in map(graph.node, vertex.node_ids) if node.properties.get(FILTERS)]
        if not nodes:
            return {}
        with (
            self._sessions.use({"spark.sql.shuffle.partitions": "1"}) as session,
            self._thread(session, self.group_of(vertex), f"{description}: keys of finished sides"),
        ):
            for node in nodes:
                self._filters.fetch(session, node)
        return {node.id: info for node in nodes if (info := self._filters.info(node)) is not None}

    def filtered_scan(self, node_id: int) -> Any:
        """Return a source's scan with the filters of its keys on top of it."""
        return self._filtered(node_id, self._plan.sources[node_id].scan.handle)

    def result_info(self, vertex: JobVertex) -> ResultInfo | None:
        """Return what a finished vertex has written, for strategies; None of a sink."""
        result = self._results.get(vertex.tail_id)
        if result is None:
            return None
        scanned = self._scanned(vertex, result)
        if isinstance(result, BroadcastResult):
            return ResultInfo(np.array([result.size_in_bytes]), result.rows, result.size_in_bytes, scanned=scanned)
        mappers = result.mapper_bytes if len(result.stages) == 1 else None
        return ResultInfo(result.sizes[0], result.rows, result.size_in_bytes, mappers, scanned)

    def subpartitions(self, vertex: JobVertex) -> list[int]:
        """Return the bytes of each subpartition that a finished vertex has written; none of a sink."""
        result = self._results.get(vertex.tail_id)
        if result is None:
            return []
        return [result.size_in_bytes] if isinstance(result, BroadcastResult) else result.sizes[0].tolist()

    def _scanned(self, vertex: JobVertex, result: Result) -> dict[int, int]:
        """Return the rows that were read from the sources of a vertex, as far as their scans have counted them."""
        leaves = {n: self._plan.sources[n].leaf for n in vertex.node_ids if n in self._plan.sources}
        found: dict[int, int] = {}
        try:
            for plan in exchange.plans_run(result) if leaves else ():
                found |= exchange.scanned_rows(self._bridge, plan, leaves)
        except Exception:
            log.info("the scans of %s do not tell their rows", vertex.name, exc_info=True)
        return found

    def run(self, vertex: JobVertex, setup: VertexSetup, description: str) -> VertexRun:
        """Run a vertex to its end; return what it gave."""
        if vertex.tail_id in self._plan.stages:
            return self._stage(vertex, description)
        settings = {
            "spark.sql.shuffle.partitions": str(setup.subpartitions),
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(setup.subpartitions),
        }
        if vertex.tail_id in self._sinks and setup.slices:
            # A task cut for a file holds few partitions, and need not sort its rows by them.
            settings["spark.sql.maxConcurrentOutputFileWriters"] = str(_OPEN_FILES)
        session = self._sessions.take(settings)
        scans = {
            node_id: self._sessions.take(files.split_settings(split_bytes, OPEN_COST))
            for node_id, split_bytes in setup.split_bytes.items()
        }
        with self._thread(session, self.group_of(vertex), description):
            graph: StreamGraph = self._graph()
            if self._verify:
                self._check_reads(vertex, setup)
            try:
                run = self._planned(vertex, setup, session, scans, graph)
            except Exception as error:
                if not exchange.is_refused(error):
                    raise
                for decision in self._decisions.of(vertex.node_ids, DecisionKind.VERTEX_PARALLELISM):
                    why = "Spark wants them laid out otherwise for an operator of several inputs"
                    self._decisions.settle(decision, instead="inputs exchanged within the vertex", because=why)
                run = self._planned(vertex, replace(setup, shared=False), session, scans, graph)
        if not isinstance(run.result, StagedResult) or run.result.stages:
            for used in (session, *scans.values()):  # else the plan still refers to their settings
                self._sessions.give_back(used)
        return run

    def _planned(
        self, vertex: JobVertex, setup: VertexSetup, session: Any, scans: Mapping[int, Any], graph: StreamGraph
    ) -> VertexRun:
        """Plan a vertex, and run it."""
        logical = self._fragment(vertex, setup, session, scans, graph)
        if vertex.tail_id in self._sinks:
            return VertexRun(None, self._to_sink(vertex, session, logical))
        (edge, *_) = graph.out_edges(vertex.tail_id)
        result = self._results[vertex.tail_id] = self._write(session, logical, edge, setup.subpartitions, setup.slots)
        return VertexRun(result, result.tasks)

    def channels(self, vertex: JobVertex) -> list[dict[str, Any]]:
        """Return what the tasks of a vertex tell of an adaptive exchange in it, the latest of each."""
        graph = self._graph()
        found: dict[int, dict[str, Any]] = {}
        for edge in (edge for node_id in vertex.node_ids for edge in graph.in_edges(node_id)):
            if isinstance(edge.partitioner, AdaptiveRebalancePartitioner | AdaptiveRescalePartitioner):
                reports = self._plan.exchanges[edge.target_id].reports()
                latest = max((report["stage"] for report in reports), default=0)  # it may have run for other jobs too
                found |= {report["index"]: report for report in reports if report["stage"] == latest}
        return [found[index] for index in sorted(found)]

    def _stage(self, vertex: JobVertex, description: str) -> VertexRun:
        sink, stage = self._plan.stages[vertex.tail_id]
        with self._thread(self._bridge.session, self.group_of(vertex), description):
            report = stage.run(self._sinks[sink])
        return VertexRun(None, report.tasks, report)

    def file_ratio(self, edge: StreamEdge) -> float:
        """Return how many bytes a sink makes on disk of each that was exchanged before it, by writing a sample."""
        result = self._results[edge.source_id]
        assert isinstance(result, StagedResult)
        assert result.mapper_bytes is not None
        index = int(result.sizes[0].argmax())
        written = np.cumsum(result.mapper_bytes([index])[:, 0])
        tasks = min(int(np.searchsorted(written, _SAMPLE)) + 1, len(written))
        if not written[tasks - 1]:
            return 1.0
        plan = self._plan.edges[edge.id]
        output = plan.output if plan.output is not None else plan.child.handle.output()
        group = f"penstock-{self._job_id}-sample-{edge.id}"
        with self._sessions.use() as session, self._thread(session, group, "sample of a sink"):
            rdd = exchange.read_slices(self._bridge, result, [[((index, index + 1), (0, tasks))]])
            leaf = fragment.rdd_leaf(self._bridge, session, output, rdd)
            size = self._sinks[edge.target_id].sample_size(dataframe(self._bridge, session, leaf))
        return size / int(written[tasks - 1]) if size else 1.0

    def _to_sink(self, vertex: JobVertex, session: Any, logical: Any) -> int:
        """Give the rows of a vertex to its sink; return the number of tasks that make them."""
        limits, logical = split_limits(logical)
        if class_name(logical) == "LogicalRDD":
            logical = fragment.without_layout(self._bridge, session, logical)
        else:
            rdd = exchange.run_to_rdd(self._bridge, session, logical)
            logical = fragment.rdd_leaf(self._bridge, session, logical.output(), rdd)
        rows = with_limits(self._bridge, limits, logical)
        sink = self._sinks[vertex.tail_id]
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                sink.write(dataframe(self._bridge, session, rows))
                break
            except Exception as error:
                if attempt == _ATTEMPTS or not is_failed_last_stage(error) or not sink.restart():
                    raise
                log.warning("the last stage of %s failed, and is run again", vertex.name, exc_info=True)
        return 1 if limits else int(logical.rdd().getNumPartitions())

    def release(self) -> None:
        """Forget all results, so that Spark can clean their shuffle files."""
        self._results.clear()
        self._tables.clear()
        self._filters.clear()
        for source in self._plan.sources.values():
            if source.splits is not None:
                source.splits.close()

    def _write(self, session: Any, logical: Any, edge: StreamEdge, subpartitions: int, slots: int) -> Result:
        plan = self._plan.edges[edge.id]
        match plan.write:
            case WriteKind.BROADCAST if plan.operator is not None:
                build = _side(edge)
                keys = self._plan.nodes[edge.target_id].join_keys.get(build, ())
                mode = exchange.broadcast_mode(self._bridge, session, plan.operator, build, keys)
                return exchange.broadcast(self._bridge, session, logical, mode)
            case WriteKind.SIDE if slots > 1:
                deal = plan.keys, plan.spread_by
                logical = fragment.hashed_in_slots(self._bridge, logical, *deal, subpartitions, slots)
            case WriteKind.SIDE:
                logical = fragment.hashed(self._bridge, logical, plan.keys, subpartitions)
            case WriteKind.OPERATOR if plan.operator is not None:
                logical = fragment.rebuild(self._bridge, plan.operator, {plan.child: logical})
            case _:
                logical = fragment.rebalanced(self._bridge, logical, subpartitions)
        sums_first = bool(self._graph().node(edge.target_id).properties.get(SUMS_FIRST))
        return exchange.write(self._bridge, session, logical, sums_first=sums_first)

    def _fragment(
        self, vertex: JobVertex, setup: VertexSetup, session: Any, scans: Mapping[int, Any], graph: StreamGraph
    ) -> Any:
        plans: dict[int, Any] = {}
        sequences = {n: one for n in vertex.node_ids if (one := graph.node(n).properties.get(SEQUENCE)) is not None}
        moved = {n for one in sequences.values() for n in one.chain[:-1]}
        for node_id in vertex.node_ids:
            if node_id in moved:
                continue
            if node_id in sequences:
                plans[node_id] = self._in_sequence(sequences[node_id], graph, setup, plans)
                continue
            top = self._plan.nodes[node_id].top
            if node_id in self._plan.sources:
                plans[node_id] = self._source(node_id, setup, scans)
            elif top is None:
                (plans[node_id],) = self._inputs(node_id, graph, setup, plans).values()
            elif len(_split(graph.in_edges(node_id), setup)) > 1:
                plans[node_id] = self._split_join(node_id, graph, setup, plans, session)
            else:
                plans[node_id] = self._operator(node_id, graph, setup, plans)
            plans[node_id] = self._filtered(node_id, plans[node_id])
        return plans[vertex.tail_id]

    def _inputs(
        self, node_id: int, graph: StreamGraph, setup: VertexSetup, plans: Mapping[int, Any]
    ) -> dict[LogicalNode, Any]:
        """Return the inputs of a node, by their places in its plan: results that lie ready, and plans of the vertex."""
        found = {}
        for edge in graph.in_edges(node_id):
            plan = self._plan.edges[edge.id]
            if edge.source_id in plans:
                found[plan.child] = plans[edge.source_id]
            else:
                place = plan.operator if plan.write is WriteKind.OPERATOR else plan.child
                assert place is not None
                found[place] = self._leaf(edge, plan, setup)
        return found

    def _operator(self, node_id: int, graph: StreamGraph, setup: VertexSetup, plans: Mapping[int, Any]) -> Any:
        """Return a node's operators on top of its inputs."""
        top = self._plan.nodes[node_id].top
        assert top is not None
        plan = fragment.rebuild(self._bridge, top, self._inputs(node_id, graph, setup, plans))
        return self._with_algorithm(graph, node_id, plan)

    def _split_join(
        self, node_id: int, graph: StreamGraph, setup: VertexSetup, plans: Mapping[int, Any], session: Any
    ) -> Any:
        """Return the rows of a join with both sides split, of which nothing is claimed.

        Every slice of one side is read by a task for each slice of the other. That is right if Spark joins what lies
        in each task, and for nothing else; so its plan is asked first, and whole subpartitions are read if it is
        another one.
        """
        plan = self._operator(node_id, graph, setup, plans)
        try:
            physical = exchange.physical_plan(self._bridge, session, plan)
            is_right = exchange.joins_its_leaves(physical)
        except Exception as error:
            if not exchange.is_refused(error):
                raise
            is_right = False
        if not is_right:
            self._decisions.came_otherwise(
                DecisionKind.SKEW,
                node_id,
                graph.node(node_id).name,
                "its subpartitions stay whole",
                "Spark plans it as another operator than one that joins the rows of each task",
                lambda decision: LARGEST in decision.figures,
            )
            split = _split(graph.in_edges(node_id), setup)
            ranges = self._whole(split, len(setup.slices[split[0].id]))
            whole = {self._plan.groups[edge.id]: ranges for edge in split}
            return self._operator(node_id, graph, replace(setup, slices={}, ranges={**setup.ranges, **whole}), plans)
        return fragment.rdd_leaf(self._bridge, self._bridge.session, plan.output(), physical.execute())

    def _check_reads(self, vertex: JobVertex, setup: VertexSetup) -> None:
        """Check that what was written for a vertex, or stands in a database, is read exactly once."""
        for source in (self._plan.sources[n] for n in vertex.node_ids if n in self._plan.sources):
            if isinstance(source.splits, CountableSplits):
                check_splits(source.coordinator.name, source.splits.rows_not_read_once())
        split: dict[int, list[str]] = {}
        for edge in (job_edge.stream_edge for job_edge in vertex.inputs):
            result, group = self._results[edge.source_id], self._plan.groups[edge.id]
            if is_broadcast(edge) or not isinstance(result, StagedResult):  # whole by nature
                continue
            ranges = setup.ranges.get(group)
            if edge.id in setup.slices:
                split.setdefault(group, []).append(edge.id)
            elif ranges is not None:
                check_ranges(f"the input {edge.id} of {vertex.name}", ranges, result.subpartitions)
        for edges in split.values():
            results = {edge.id: self._results[edge.source_id] for edge in self._graph().edges if edge.id in edges}
            staged = {name: result for name, result in results.items() if isinstance(result, StagedResult)}
            check_slices(
                vertex.name,
                {name: setup.slices[name] for name in staged},
                {name: result.sizes[0].tolist() for name, result in staged.items()},
                {name: result.tasks for name, result in staged.items()},
            )

    def _whole(self, edges: Sequence[StreamEdge], tasks: int) -> list[Range]:
        """Return ranges of whole subpartitions for so many tasks, for inputs that are cut alike."""
        results = [self._results[edge.source_id] for edge in edges]
        sizes = [result.sizes[0] for result in results if isinstance(result, StagedResult)]
        return pack_exactly(SizeRow(np.sum(sizes, axis=0)), tasks)

    def _in_sequence(
        self, sequence: JoinSequence, graph: StreamGraph, setup: VertexSetup, plans: Mapping[int, Any]
    ) -> Any:
        """Return a chain of broadcast joins in the order that was decided, with the columns of its last join."""
        (probe,) = (edge for edge in graph.in_edges(sequence.chain[0]) if not is_broadcast(edge))
        # Rows that lay right for the first join when its place was decided may be exchanged before it since.
        plan = plans[probe.source_id] if probe.is_forward else self._leaf(probe, self._plan.edges[probe.id], setup)
        for node_id in sequence.joins:
            join = self._plan.nodes[node_id].top
            assert join is not None
            (build,) = (edge for edge in graph.in_edges(node_id) if is_broadcast(edge))
            leaf = self._leaf(build, self._plan.edges[build.id], setup)
            inputs = [leaf, plan] if build.type_number == NUMBER["left"] else [plan, leaf]
            plan = join.handle.withNewChildren(self._bridge.seq(inputs))
            plan = self._with_algorithm(graph, node_id, plan)
        last = self._plan.nodes[sequence.chain[-1]].top
        assert last is not None
        return self._filtered(sequence.chain[-1], fragment.projected(self._bridge, plan, last.handle.output()))

    def _with_algorithm(self, graph: StreamGraph, node_id: int, plan: Any) -> Any:
        """Return a join that Spark runs as was decided: left alone, it would choose by statistics once more."""
        edges = sides(graph, graph.node(node_id))
        hinted = graph.node(node_id).properties.get("hinted")
        if not edges or hinted or any(self._is_relation(edge) for edge in edges.values()):
            return plan
        hash_side = graph.node(node_id).properties.get(HASH_SIDE)
        if hash_side:
            return fragment.hash_join(self._bridge, plan, hash_side)
        if graph.node(node_id).properties["join_type"] == "LeftSingle":  # Spark cannot merge these
            return plan
        return fragment.merge_join(self._bridge, plan)

    def _is_relation(self, edge: StreamEdge) -> bool:
        """Whether a join's side is a broadcast relation by now."""
        if not is_broadcast(edge):
            return False
        keys = self._plan.nodes[edge.target_id].join_keys[_side(edge)]
        table = self._tables.get((edge.source_id, ", ".join(map(expression_key, keys))))
        return isinstance(self._results.get(edge.source_id), BroadcastResult) or table is not None

    def _filtered(self, node_id: int, plan: Any) -> Any:
        """Return a node's plan less the rows that finished join sides rule out."""
        return self._filters.apply(self._graph().node(node_id), plan)

    def _table(self, edge: StreamEdge, result: StagedResult) -> BroadcastResult | None:
        """Return a measured result as a broadcast relation for a join, made once; None if it does not fit after all."""
        build = _side(edge)
        keys = self._plan.nodes[edge.target_id].join_keys[build]
        name = edge.source_id, ", ".join(map(expression_key, keys))
        with self._lock:
            if name not in self._tables:
                join = self._plan.nodes[edge.target_id].top
                assert join is not None
                mode = exchange.broadcast_mode(self._bridge, self._bridge.session, join, build, keys)
                try:
                    ranges = spread_by_count(result.subpartitions, min(_READERS, result.subpartitions))
                    self._tables[name] = exchange.broadcast_staged(self._bridge, result, mode, ranges)
                except Exception as error:
                    if not is_out_of_memory(error):
                        raise
                    log.warning("broadcasting the %s side of node %s failed, it is shuffled", build, edge.target_id)
                    self._tables[name] = None
                    self._too_large[name] = first_line(error)
            table = self._tables[name]
        if table is None:
            self._decisions.came_otherwise(
                DecisionKind.BROADCAST,
                edge.target_id,
                self._graph().node(edge.target_id).name,
                f"the {build} side is shuffled",
                f"it could not be broadcast: {self._too_large[name]}",
                lambda decision: decision.chosen == build,
            )
        if self._verify and table is not None and result.is_plain_exchange:
            check_rows(f"the broadcast {edge.id}", result.rows, table.rows)
        return table

    def _source(self, node_id: int, setup: VertexSetup, scans: Mapping[int, Any]) -> Any:
        source = self._plan.sources[node_id]
        leaf = source.leaf.handle if source.splits is None else source.splits.leaf()
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
        if is_broadcast(edge) and plan.write is WriteKind.SIDE:
            table = self._table(edge, result)
            if table is not None:
                return fragment.broadcast_leaf(self._bridge, output, table.stage)
        is_operator = plan.write is WriteKind.OPERATOR and plan.operator is not None
        if is_operator:
            output = plan.operator.handle.output()  # type: ignore[union-attr]
        slices = setup.slices.get(edge.id)
        if slices is not None:
            pieces = [[(one.subpartitions, one.mappers) for one in task] for task in slices]
            rdd = exchange.read_slices(self._bridge, result, pieces)
            meets = len(_split(self._graph().in_edges(edge.target_id), setup)) > 1
            joint = fragment.joint_layout(self._bridge, plan.keys, len(slices)) if meets else None
            layout = exchange.shareable(self._bridge, joint)
            lies = exchange.layout(self._bridge, result.above, output) if self._verify else None
            checkable = all(len(task) == 1 for task in slices)
            spans = [task[0].subpartitions for task in slices]
            told = verification.span_layout(self._bridge, lies, spans) if checkable else None
        else:
            ranges = None if is_broadcast(edge) else setup.ranges.get(self._plan.groups[edge.id])
            physical = exchange.as_cut(self._bridge, result, ranges)
            rdd = physical.execute()
            told = layout = exchange.layout(self._bridge, physical, output)
            if setup.shared:
                layout = exchange.shareable(self._bridge, told)
        if self._verify and told is not None:
            rdd = verification.checked(self._bridge, rdd, told, output, f"the input {edge.id}")
        return fragment.rdd_leaf(
            self._bridge,
            self._bridge.session,
            output,
            rdd,
            layout=layout,
            ordering=result.above.outputOrdering() if is_operator else None,
            statistics=result.statistics if result.is_plain_exchange else None,
        )


def _split(edges: Sequence[StreamEdge], setup: VertexSetup) -> list[StreamEdge]:
    """Return those of some edges whose subpartitions are split, or meet such."""
    return [edge for edge in edges if edge.id in setup.slices]


def _side(edge: StreamEdge) -> str:
    """Return the side of a join that an edge leads to."""
    return next(side for side, number in NUMBER.items() if number == edge.type_number)
