"""The plan of a job: a stream graph, and the part of Spark's plan for each node and edge."""

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
    """The output that a vertex writes for a consumer."""

    SIDE = "side"
    """The rows, hash partitioned by keys."""
    OPERATOR = "operator"
    """The consumer's first operator, up to its exchange: partial aggregates, for instance."""
    ROWS = "rows"
    """The rows, distributed round-robin."""
    BROADCAST = "broadcast"
    """The rows as a broadcast relation, hashed for the join of the consumer."""


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """The part of Spark's plan for an edge.

    Parameters
    ----------
    child
        The operator of the consumer's plan that the result of the producer replaces.
    write
        The kind of output; None for a FORWARD edge.
    operator
        For `WriteKind.OPERATOR`, the operator; for `WriteKind.BROADCAST`, the join.
    keys
        For `WriteKind.SIDE`, the key expressions.
    signature
        Edges from the same node with equal signatures can read the same written result.
    output
        The attributes by which the consumer refers to the result, if not those of `child`.
    spread_by
        For `WriteKind.SIDE` before files of a target size, the columns whose hash distributes rows with equal keys.
    consumer
        The function whose tasks pull the rows in chunks, or None.
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
        """The attributes by which the consumer refers to the result."""
        return self.child.output if self.output is None else self.output


Ids = tuple[str, ...]
"""Expression ids of key columns, or of the columns that keys are computed from."""


@dataclass(frozen=True, slots=True)
class FilterTarget:
    """An operator of Spark's plan above which a filter can be placed, with the key columns in its output."""

    node_id: int
    operator: LogicalNode
    ids: Ids


@dataclass(frozen=True, slots=True)
class SparkFilterPath:
    """The part of Spark's plan for a `FilterPath`: its targets, lowest first, and the keys on both sides.

    `ids` are the columns that `keys` are computed from.
    """

    targets: tuple[FilterTarget, ...]
    source_keys: tuple[Expression, ...]
    keys: tuple[Expression, ...]
    ids: Ids

    def __post_init__(self) -> None:
        # All keys are hashed together for the lookup, so both sides need the same number.
        assert len(self.source_keys) == len(self.keys), "the collected keys and the looked-up keys must correspond"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The part of Spark's plan for a node.

    Parameters
    ----------
    top
        The topmost operator; None for a sink, or for a node that only forwards rows.
    join_keys
        For an equi-join, the key expressions of each side.
    filter_paths
        For a join, its filter paths, in the order of `JoinOperator.filters`.
    """

    top: LogicalNode | None
    join_keys: Mapping[Side, tuple[Expression, ...]] = field(default_factory=dict)
    filter_paths: tuple[SparkFilterPath, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The part of Spark's plan for a source.

    Parameters
    ----------
    static
        The parallelism set by the connector, or None.
    filtered
        The relation with the filters directly above it.
    scan
        How the source is split and read.
    """

    leaf: LogicalNode
    coordinator: SourceCoordinator
    options: ScanOptions
    static: int | None
    filtered: LogicalNode
    scan: Scan

    def with_filters(self, plan: LogicalPlan) -> SourcePlan:
        """Return the source with additional filters; `plan` is its relation with all filters above it."""
        scan, inferring = self.scan.with_filters(plan), self.coordinator.source
        user_source = None if inferring is self.scan else inferring
        coordinator = SourceCoordinator(self.coordinator.name, scan.parallelism_source(user_source))
        return replace(self, scan=scan, coordinator=coordinator)


@dataclass(frozen=True)
class JobPlan:
    """The plan of a job.

    Parameters
    ----------
    graph
        The stream graph.
    nodes, edges, sources, sinks
        The part of Spark's plan for each, by node or edge id. A source is replaced while the job runs if it is filtered
        further.
    groups
        The exchange group of an edge; edges of the same group have the same partitioning.
    widths
        The number of subpartitions of a group, if the user set it.
    width_groups
        The representative of groups that a node writes together and that have the same number of subpartitions.
    stages
        The sink and the stage that runs after the rows of the sink are written, by node.
    exchanges
        The consumer stage of an adaptive exchange, by node.
    choices
        The decisions of the planner.
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
        """Iterate over the operators of the user's plan that a node runs, from the top down."""
        node = self.nodes.get(node_id)
        edges = (self.edges.get(edge.id) for edge in self.graph.in_edges(node_id))
        below = {id(edge.child) for edge in edges if edge is not None}
        todo = [] if node is None or node.top is None else [node.top]
        while todo:
            operator = todo.pop()
            if id(operator) not in below:
                yield operator
                todo += operator.children

    def width(self, group: int) -> int | None:
        """Return the number of subpartitions of a group that the user set, or None."""
        return self.widths.get(group)

    def family(self, group: int) -> int:
        """Return the representative of the groups with the same number of subpartitions."""
        return self.width_groups.get(group, group)
