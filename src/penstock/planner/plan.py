"""What the planner hands to the scheduler: a stream graph, and for each node and edge its part of Spark's plan."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.connectors.coordinator import SourceCoordinator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.connectors.base import Sink, SinkStage
    from penstock.connectors.scan import Scan
    from penstock.connectors.scan_parallelism import ScanOptions
    from penstock.decisions import Choice
    from penstock.graph import Side, StreamGraph
    from penstock.plan_hints import Stage
    from penstock.rebalance.consumer import PulledConsumer
    from penstock.spark.expressions import Attributes, Expression
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


class WriteKind(StrEnum):
    """What a vertex writes for a consumer."""

    SIDE = "side"
    """Its rows, hashed by keys."""
    OPERATOR = "operator"
    """The consumer's first operator, up to its exchange: partial aggregates, for instance."""
    ROWS = "rows"
    """Its rows, distributed in turn."""
    BROADCAST = "broadcast"
    """Its rows as a relation, hashed for the consumer's join, that every executor can fetch."""


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """An edge in Spark's terms.

    Parameters
    ----------
    child
        The place in the consumer's plan where the producer's result belongs.
    write
        What is written; None on a FORWARD edge.
    operator
        For `WriteKind.OPERATOR`, the operator; for `WriteKind.BROADCAST`, the join.
    keys
        For `WriteKind.SIDE`, the key expressions.
    signature
        Edges from one node with equal signatures can read the same written result.
    output
        The attributes under which the consumer knows the result, if not those of `child`.
    spread_by
        For `WriteKind.SIDE` before files of a wanted size, the columns whose hash deals out rows with equal keys.
    consumer
        The function of the consumer whose tasks take the rows piece by piece, if the edge leads to one.
    """

    child: LogicalNode
    write: WriteKind | None = None
    operator: LogicalNode | None = None
    keys: tuple[Expression, ...] = ()
    signature: str = ""
    output: Attributes | None = None
    spread_by: tuple[Expression, ...] = ()
    consumer: PulledConsumer | None = None

    @property
    def attributes(self) -> Attributes:
        """The attributes under which the consumer knows the result."""
        return self.child.output if self.output is None else self.output


Ids = tuple[str, ...]
"""Expression ids of the columns that the keys are computed from, or are."""


@dataclass(frozen=True, slots=True)
class FilterTarget:
    """An operator of Spark's plan behind which a filter can stand.

    Parameters
    ----------
    node_id
        The node of the graph.
    operator
        The operator.
    ids
        The columns of the keys in its output.
    """

    node_id: int
    operator: LogicalNode
    ids: Ids


@dataclass(frozen=True, slots=True)
class SparkFilterPath:
    """A `FilterPath` in Spark's terms.

    Parameters
    ----------
    targets
        Where the filter can stand, the lowest first.
    source_keys
        The keys in terms of the filter source.
    keys, ids
        The keys of the filtered side in terms of the join's input, and the columns they are computed from.
    """

    targets: tuple[FilterTarget, ...]
    source_keys: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    ids: Ids

    def __post_init__(self) -> None:
        # Keys are looked up by one hash of them all: of more or fewer columns, none would be found.
        assert len(self.source_keys) == len(self.keys), "a filter looks up the keys that were collected"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node in Spark's terms.

    Parameters
    ----------
    top
        Its last operator; None of a sink, or of a node that only passes rows on.
    join_keys
        Of an equi-join, the key expressions of each side.
    filter_paths
        Of a join, its paths for filters in Spark's terms, in the order of `JoinOperator.filters`.
    """

    top: LogicalNode | None
    join_keys: Mapping[Side, tuple[Expression, ...]] = field(default_factory=dict)
    filter_paths: tuple[SparkFilterPath, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source in Spark's terms.

    Parameters
    ----------
    leaf
        The relation.
    coordinator
        Asks for its parallelism.
    options
        What the user said about it.
    static
        What the connector fixed, or None.
    filtered
        The relation with the filters right above it.
    scan
        How it is cut and read.
    """

    leaf: LogicalNode
    coordinator: SourceCoordinator
    options: ScanOptions
    static: int | None
    filtered: LogicalNode
    scan: Scan

    def with_filters(self, plan: LogicalPlan) -> SourcePlan:
        """Return the source as it is once its rows are filtered further.

        Parameters
        ----------
        plan
            Its relation with all filters above it.
        """
        scan, asked = self.scan.with_filters(plan), self.coordinator.source
        coordinator = SourceCoordinator(self.coordinator.name, scan.asked(None if asked is self.scan else asked))
        return replace(self, scan=scan, coordinator=coordinator)


@dataclass(frozen=True)
class JobPlan:
    """A job before it runs.

    Parameters
    ----------
    graph
        The stream graph.
    nodes, edges, sources, sinks
        The parts of each, by node or edge id. A source is exchanged while the job runs once it is filtered further.
    groups
        The exchange group of an edge; edges of a group are cut alike.
    widths
        The number of subpartitions of a group where the user fixed it.
    width_groups
        For groups of which one node writes for several: the one that stands for all. They have as many subpartitions.
    stages
        By node: the sink it belongs to, and what is done there once the sink's rows are written.
    exchanges
        By node: what consumes the rows of an adaptive exchange.
    choices
        What the planner decided.
    """

    graph: StreamGraph
    nodes: Mapping[int, NodePlan]
    edges: Mapping[str, EdgePlan]
    sources: dict[int, SourcePlan]
    sinks: Mapping[int, Sink]
    groups: Mapping[str, int]
    widths: Mapping[int, int] = field(default_factory=dict)
    width_groups: Mapping[int, int] = field(default_factory=dict)
    stages: Mapping[int, tuple[int, SinkStage]] = field(default_factory=dict)
    exchanges: Mapping[int, Stage] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()

    def operators(self, node_id: int) -> Iterator[LogicalNode]:
        """Iterate over the operators of the user's plan that a node runs; none of a node that has none of its own."""
        node = self.nodes.get(node_id)
        edges = (self.edges.get(edge.id) for edge in self.graph.in_edges(node_id))
        below = {id(edge.child) for edge in edges if edge is not None}
        todo = [] if node is None or node.top is None else [node.top]
        while todo:
            part = todo.pop()
            if id(part) not in below:
                yield part
                todo += part.children

    def width(self, group: int) -> int | None:
        """Return the fixed number of subpartitions of a group, or None."""
        return self.widths.get(group)

    def family(self, group: int) -> int:
        """Return the group that stands for all that have as many subpartitions as one."""
        return self.width_groups.get(group, group)
