"""Helpers to test optimization strategies and sources without Spark: graphs as text, results, and simulated jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.config import Configuration
from penstock.decisions.log import Decision, DecisionKind, DecisionLog
from penstock.events import JobEventBus, JobStatusEvent
from penstock.graph import (
    AdaptiveGraphManager,
    CalcOperator,
    DynamicFilterRef,
    Operator,
    StreamEdge,
    StreamGraph,
    StreamGraphContext,
    StreamNode,
)
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    GLOBAL,
    REBALANCE,
    RESCALE,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
    Partitioner,
)
from penstock.optimizer import (
    OperatorsFinished,
    OperatorsRunning,
    Resources,
    ResultInfo,
    StreamGraphOptimizationStrategy,
)
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.optimizer.user_strategies import UserStrategy, as_strategy

if TYPE_CHECKING:
    from penstock.connectors import Predicate, SplitSource
    from penstock.optimizer.strategy import PartialResult

MIB = 1 << 20
HASH = HashPartitioner(("k",))  # the partitioner of all hash exchanges in a graph as text
ARROWS: Mapping[str, Partitioner] = {
    "->": FORWARD,
    "#>": HASH,
    "*>": BROADCAST,
    "=>": REBALANCE,
    "/>": RESCALE,
    "1>": GLOBAL,
    "~>": ForwardForConsecutiveHashPartitioner(HASH),
}
"""The partitioner that each arrow of a graph stands for."""
RESOURCES = Resources(
    broadcast_threshold=10 * MIB,
    broadcast_memory=400 * MIB,
    task_memory=100 * MIB,
    volume_per_task=16 * MIB,
    cores=16,
)
"""The resources of a simulated job."""


def stream_graph(
    text: str,
    operators: Mapping[int, Operator] | None = None,
    *,
    parallelism: Mapping[int, int] | None = None,
    filters: Mapping[int, tuple[DynamicFilterRef, ...]] | None = None,
) -> StreamGraph:
    """Return the graph described by a text.

    >>> [edge.partitioner for edge in stream_graph("1 #> 2").edges]
    [HashPartitioner(keys=('k',))]

    Parameters
    ----------
    text
        A line for each edge: ``1 #> 3``. The arrows are those of `ARROWS`. The first edge to a node is its left input.
    operators
        The operators, by node id. The default is a `CalcOperator`.
    parallelism
        The parallelism that the user set, by node id.
    filters
        The initial dynamic filters, by node id.
    """
    nodes: dict[int, StreamNode] = {}
    edges: list[StreamEdge] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        source, arrow, target = line.split()
        for node_id in (int(source), int(target)):
            nodes[node_id] = StreamNode(
                node_id,
                (operators or {}).get(node_id, CalcOperator()),
                f"n{node_id}",
                parallelism=(parallelism or {}).get(node_id, None),
                filters=(filters or {}).get(node_id, ()),
            )
        input_number = 1 + sum(edge.target_id == int(target) for edge in edges)
        edges.append(StreamEdge(f"{source}-{target}", int(source), int(target), ARROWS[arrow], input_number))
    return StreamGraph(nodes.values(), edges)


def measured(
    *mib: float,
    rows: int | None = 1000,
    memory: int | None = None,
    scanned: Mapping[int, int] | None = None,
    mappers: Callable[[Sequence[int]], np.ndarray] | None = None,
) -> ResultInfo:
    """Return the measured output of a finished vertex, for `StrategyHarness.finish`.

    Parameters
    ----------
    mib
        The MiB of each subpartition.
    rows, memory, scanned, mappers
        As in `ResultInfo`. If `memory` is None, it is the sum of the subpartitions.
    """
    sizes = np.array([int(size * MIB) for size in mib], dtype=np.int64)
    return ResultInfo(sizes, rows, int(sizes.sum()) if memory is None else memory, mappers, scanned or {})


class StrategyHarness:
    r"""A simulated job that creates vertices as a real job does; they finish when the test calls `finish`.

    >>> from penstock.graph import JoinOperator, JoinType
    >>> from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
    >>> job = StrategyHarness([AdaptiveBroadcastJoin], "1 #> 3\n2 #> 3\n3 -> 4", {3: JoinOperator(JoinType.INNER)})
    >>> job.finish(1, measured(3))  # 3 MiB are less than the broadcast threshold
    []
    >>> sorted(job.edges)  # node 2 has started already, so its edge is RESCALE (/>) instead of FORWARD
    ['1 *> 3', '2 /> 3', '3 -> 4']

    Parameters
    ----------
    strategies
        The strategies: classes, objects or functions.
    text, operators, parallelism, filters
        The graph, see `stream_graph`.
    config, resources
        The options and resources of the job.
    skips
        Whether a strategy that raises is skipped, as in a real job; if False, its error is raised.
    """

    def __init__(
        self,
        strategies: Sequence[UserStrategy],
        text: str,
        operators: Mapping[int, Operator] | None = None,
        *,
        parallelism: Mapping[int, int] | None = None,
        filters: Mapping[int, tuple[DynamicFilterRef, ...]] | None = None,
        config: Mapping[str, Any] | None = None,
        resources: Resources = RESOURCES,
        skips: bool = False,
    ) -> None:
        self._events = JobEventBus()
        self._decisions = DecisionLog(self._events)
        instances = [as_strategy(strategy) for strategy in strategies]
        optimizer = StreamGraphOptimizer if skips else _RaisingOptimizer
        self._optimizer = optimizer(instances, Configuration.load(config or {}), resources, self._decisions)
        graph = stream_graph(text, operators, parallelism=parallelism, filters=filters)
        self._manager = AdaptiveGraphManager(graph, self._optimizer.initialize, self._events)

    @property
    def graph(self) -> StreamGraph:
        """The current graph."""
        return self._manager.graph

    @property
    def context(self) -> StreamGraphContext:
        """The view through which strategies change the pending part of the graph."""
        return self._manager.stream_graph_context

    @property
    def edges(self) -> set[str]:
        """The edges as text; an edge whose subpartitions several tasks may share ends with ``cut``."""
        arrows = {partitioner: arrow for arrow, partitioner in ARROWS.items()}
        return {
            f"{e.source_id} {arrows[e.partitioner]} {e.target_id}" + ("" if e.intra_input_correlated else " cut")
            for e in self.graph.edges
        }

    @property
    def vertices(self) -> set[str]:
        """The names of the vertices created so far."""
        return {vertex.name for vertex in self._manager.job_graph}

    @property
    def pending(self) -> int:
        """The number of nodes that are not part of a vertex yet."""
        return self._manager.pending_operators

    @property
    def decisions(self) -> list[Decision]:
        """The decisions, in order."""
        return list(self._decisions)

    @property
    def events(self) -> list[JobStatusEvent]:
        """The events, in order: decisions, changes of the graph, and refused changes."""
        return self._events.events

    def chosen(self, kind: DecisionKind) -> list[str]:
        """Return the choices of all decisions of a kind, as text."""
        return [str(decision.chosen) for decision in self._decisions if decision.kind is kind]

    def operator(self, node_id: int) -> Operator:
        """Return the operator of a node, as changed by the strategies."""
        return self.graph.node(node_id).operator

    def finish(self, node_id: int, result: ResultInfo | None = None) -> list[str]:
        """Finish the vertex whose last node is `node_id`; return the names of the newly created vertices."""
        (vertex,) = (vertex for vertex in self._manager.job_graph if vertex.tail_id == node_id)
        self._manager.finish(vertex.id)
        results = {} if result is None else {node_id: result}
        self._optimizer.on_operators_finished(OperatorsFinished(vertex.node_ids, results))
        return [vertex.name for vertex in self._manager.grow()]

    def progress(self, node_id: int, partial: PartialResult) -> list[str]:
        """Report a partial result of the vertex whose last node is `node_id`; return the names of the new vertices."""
        (vertex,) = (vertex for vertex in self._manager.job_graph if vertex.tail_id == node_id)
        self._optimizer.on_operators_running(OperatorsRunning(vertex.node_ids, {node_id: partial}))
        return [vertex.name for vertex in self._manager.grow()]


class _RaisingOptimizer(StreamGraphOptimizer):
    """Optimizer that raises the errors of strategies."""

    def _skip(self, strategy: StreamGraphOptimizationStrategy, error: Exception) -> None:
        del strategy
        raise error


@dataclass(frozen=True, slots=True)
class SplitReading:
    """The result of `read_splits`: the splits of the source and of each task, and all rows in the order of tasks."""

    splits: tuple[Any, ...]
    tasks: tuple[tuple[Any, ...], ...]
    rows: list[tuple[Any, ...]]


def read_splits(
    source: SplitSource,
    *,
    columns: Sequence[str] | None = None,
    parallelism: int = 4,
    volume: int = 16 * MIB,
    predicates: Sequence[Predicate] = (),
) -> SplitReading:
    """Read a source as a job does, but without Spark: enumerate splits, assign them to tasks, and read them.

    >>> parquet.write_table(pa.table({"id": [1, 2]}), f"{folder}/ids.parquet")
    >>> read_splits(ObjectStoreSource(f"file://{folder}")).rows
    [(1,), (2,)]

    Parameters
    ----------
    source
        The source.
    columns
        The columns that the job reads; all if None.
    parallelism
        The maximum number of tasks.
    volume
        The bytes that a task should read.
    predicates
        Predicates for the source; rows that do not satisfy them are not needed.

    Raises
    ------
    AssertionError
        If a batch has other columns than requested, or other types than in the schema.
    """
    from penstock.connectors import ScanContext
    from penstock.connectors.core.split_format import read_without_spark
    from penstock.connectors.core.split_source import arrow_schema, assign_splits

    names = list(columns or source.schema.fieldNames())
    context = ScanContext(parallelism, volume, tuple(names), tuple(predicates))
    splits = source.enumerate_splits(context)
    tasks = assign_splits(source, splits, parallelism)
    expected = arrow_schema(source.schema, names)
    rows: list[tuple[Any, ...]] = []
    for batch in read_without_spark(source, names, tasks):
        actual = batch.schema
        assert actual.names == names, f"read_split returned the columns {actual.names} instead of {names}"
        assert actual.types == expected.types, (
            f"read_split returned the types {actual.types} instead of {expected.types}"
        )
        rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return SplitReading(tuple(splits), tuple(map(tuple, tasks)), rows)
