r"""Tests of strategies and sources without Spark: graphs as text, results as figures, and a simulated job.

Example
-------
>>> from penstock.graph import JoinOperator, JoinType
>>> from penstock.optimizer.broadcast_join import AdaptiveBroadcastJoin
>>> job = StrategyHarness([AdaptiveBroadcastJoin], "1 #> 3\n2 #> 3\n3 -> 4", {3: JoinOperator(JoinType.INNER)})
>>> job.finish(1, measured(3))  # 3 MiB are less than the broadcast threshold
[]
>>> sorted(job.edges)
['1 *> 3', '2 /> 3', '3 -> 4']
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.config import Configuration
from penstock.decisions import DecisionKind, DecisionLog
from penstock.events import JobAccount
from penstock.graph import (
    AdaptiveGraphManager,
    CalcOperator,
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
from penstock.optimizer.given import as_strategy
from penstock.optimizer.optimizer import StreamGraphOptimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.connectors import Predicate, SplitSource
    from penstock.decisions import Decision
    from penstock.events import JobStatusEvent
    from penstock.graph import DynamicFilterRef, Operator
    from penstock.optimizer.extrapolation import PartialResult
    from penstock.optimizer.given import GivenStrategy

MIB = 1 << 20
HASH = HashPartitioner(("k",))
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
    """Return a graph that is written as text.

    Parameters
    ----------
    text
        A line for each edge: ``1 #> 3``. The arrows are those of `ARROWS`. The first edge to a node is its left input.
    operators
        The operators, by node id. The default is a `CalcOperator`.
    parallelism
        The parallelism that the user set, by node id.
    filters
        Dynamic filters from the start, by node id.
    """
    nodes: dict[int, StreamNode] = {}
    edges: list[StreamEdge] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        source, arrow, target = line.split()
        for end in (int(source), int(target)):
            nodes[end] = StreamNode(
                end,
                (operators or {}).get(end, CalcOperator()),
                f"n{end}",
                parallelism=(parallelism or {}).get(end, None),
                filters=(filters or {}).get(end, ()),
            )
        number = 1 + sum(edge.target_id == int(target) for edge in edges)
        edges.append(StreamEdge(f"{source}-{target}", int(source), int(target), ARROWS[arrow], number))
    return StreamGraph(nodes.values(), edges)


def measured(
    *mib: float,
    rows: int | None = 1000,
    memory: int | None = None,
    scanned: Mapping[int, int] | None = None,
    mappers: Callable[[Sequence[int]], np.ndarray] | None = None,
) -> ResultInfo:
    """Return the output of a finished vertex.

    Parameters
    ----------
    mib
        The MiB of each subpartition.
    rows, memory, scanned, mappers
        As in `ResultInfo`. If `memory` is None, it is the bytes as written.
    """
    sizes = np.array([int(one * MIB) for one in mib], dtype=np.int64)
    return ResultInfo(sizes, rows, int(sizes.sum()) if memory is None else memory, mappers, scanned or {})


class StrategyHarness:
    """A simulated job: it makes vertices as a real one does, and they finish when the test calls `finish`.

    Parameters
    ----------
    strategies
        The strategies: classes, objects or functions.
    text, operators, parallelism, filters
        The graph, see `stream_graph`.
    config, resources
        The options and resources of the job.
    skips
        Whether a strategy that raises is skipped, as in a real job; if not, the test gets its error.
    """

    def __init__(
        self,
        strategies: Sequence[GivenStrategy],
        text: str,
        operators: Mapping[int, Operator] | None = None,
        *,
        parallelism: Mapping[int, int] | None = None,
        filters: Mapping[int, tuple[DynamicFilterRef, ...]] | None = None,
        config: Mapping[str, Any] | None = None,
        resources: Resources = RESOURCES,
        skips: bool = False,
    ) -> None:
        self._account = JobAccount()
        self._decisions = DecisionLog(self._account)
        made = [as_strategy(one) for one in strategies]
        optimizer = StreamGraphOptimizer if skips else _Unforgiving
        self._optimizer = optimizer(made, Configuration.load(config or {}), resources, self._decisions)
        graph = stream_graph(text, operators, parallelism=parallelism, filters=filters)
        self._manager = AdaptiveGraphManager(graph, self._optimizer.initialize, self._account)

    @property
    def graph(self) -> StreamGraph:
        """The graph as it is now."""
        return self._manager.graph

    @property
    def context(self) -> StreamGraphContext:
        """The view through which the pending graph is changed."""
        return self._manager.stream_graph_context

    @property
    def edges(self) -> set[str]:
        """The edges as text; those whose subpartitions may be split end with ``cut``."""
        arrows = {partitioner: arrow for arrow, partitioner in ARROWS.items()}
        return {
            f"{e.source_id} {arrows[e.partitioner]} {e.target_id}" + ("" if e.intra_input_correlated else " cut")
            for e in self.graph.edges
        }

    @property
    def vertices(self) -> set[str]:
        """The names of the vertices made so far."""
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
        """What happened, in order: decisions, changes of the graph, and changes that were refused."""
        return self._account.events

    def chosen(self, kind: DecisionKind) -> list[str]:
        """Return the choices of all decisions of a kind."""
        return [str(decision.chosen) for decision in self._decisions if decision.kind is kind]

    def operator(self, node_id: int) -> Operator:
        """Return the operator of a node, with the decisions about it."""
        return self.graph.node(node_id).operator

    def finish(self, node_id: int, result: ResultInfo | None = None) -> list[str]:
        """Let the vertex that ends with a node finish; return the names of the vertices made because of it."""
        (vertex,) = (one for one in self._manager.job_graph if one.tail_id == node_id)
        self._manager.finish(vertex.id)
        results = {} if result is None else {node_id: result}
        self._optimizer.on_operators_finished(OperatorsFinished(vertex.node_ids, results))
        return [made.name for made in self._manager.grow()]

    def progress(self, node_id: int, partial: PartialResult) -> list[str]:
        """Let the vertex that ends with a node write a part of its result; return the vertices made because of it."""
        (vertex,) = (one for one in self._manager.job_graph if one.tail_id == node_id)
        self._optimizer.on_operators_running(OperatorsRunning(vertex.node_ids, {node_id: partial}))
        return [made.name for made in self._manager.grow()]


class _Unforgiving(StreamGraphOptimizer):
    """Lets the error of a strategy through: in a test it is what there is to see."""

    def _skip(self, strategy: StreamGraphOptimizationStrategy, error: Exception) -> None:
        del strategy
        raise error


@dataclass(frozen=True, slots=True)
class SplitReading:
    """What a source gave for a job.

    Parameters
    ----------
    splits
        The splits, as the source told them.
    tasks
        The splits that each task read.
    rows
        All rows, task by task.
    """

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
    """Read a source as a job would, without Spark: splits are told, assigned to tasks, and read by its copies.

    Parameters
    ----------
    source
        The source.
    columns
        The columns that the job reads; all if None.
    parallelism
        The most tasks.
    volume
        The bytes a task should read.
    predicates
        What is true of every row that matters.

    Raises
    ------
    AssertionError
        If a batch has other columns than were asked for, or other types than the schema's.
    """
    from penstock.connectors import ScanContext
    from penstock.connectors.split_format import read_without_spark
    from penstock.connectors.split_source import arrow_schema, assigned

    names = list(columns or source.schema.fieldNames())
    context = ScanContext(parallelism, volume, tuple(names), tuple(predicates))
    splits = source.enumerate_splits(context)
    tasks = assigned(source, splits, parallelism)
    expected = arrow_schema(source.schema, names)
    rows: list[tuple[Any, ...]] = []
    for batch in read_without_spark(source, names, tasks):
        found = batch.schema
        assert found.names == names, f"read_split gave the columns {found.names} where {names} were asked for"
        assert found.types == expected.types, (
            f"read_split gave the types {found.types}, the schema says {expected.types}"
        )
        rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return SplitReading(tuple(splits), tuple(map(tuple, tasks)), rows)
