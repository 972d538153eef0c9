"""The plan of a job: a stream graph with the part of Spark's plan for each node and edge, or only Spark's plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.config.options import WHOLE_QUERY_THRESHOLD
from penstock.connectors.core.coordinator import SourceCoordinator
from penstock.decisions.log import Choice, DecisionKind, Explanation, NameRef

if TYPE_CHECKING:
    from penstock.connectors.core.base import Sink, SinkStage
    from penstock.connectors.core.scan import Scan
    from penstock.connectors.core.scan_parallelism import ScanOptions
    from penstock.graph import Side, StreamGraph
    from penstock.hints.plan_hints import ConsumerStage
    from penstock.planner.outputs import Output
    from penstock.rebalance.operator import PulledConsumer
    from penstock.spark.plans.expressions import Attributes, Expression
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode


class WriteKind(StrEnum):
    """The form in which a vertex writes its output for a consumer."""

    SIDE = "side"
    """The rows, hash partitioned by keys, as for a side of a join."""
    OPERATOR = "operator"
    """The rows of the consumer's first operator up to its exchange, such as partial aggregates."""
    ROWS = "rows"
    """The rows, distributed round-robin."""
    BROADCAST = "broadcast"
    """The rows as a broadcast relation, hashed for the join of the consumer."""


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """The part of Spark's plan for an edge.

    `child` is the operator of the consumer's plan whose rows the producer computes. `write` is None if no rows are
    written: for a FORWARD edge, an exchange within a stage, or an edge to a sink stage. `operator` is the consumer's
    operator for `WriteKind.OPERATOR`, or its join for `WriteKind.BROADCAST`. `keys` are the keys of `WriteKind.SIDE`.
    Before a sink with a target file size, the hash of `spread_by` divides rows with equal keys among several slots of a
    subpartition. Edges from the same node with equal signatures can read the same written result; an edge without a
    signature shares no result. `output` are the attributes by which the consumer refers to the result, None for those
    of `child`. `consumer` is the function whose tasks pull the rows in chunks, or None.
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
    """The part of Spark's plan for a `FilterPath`: the targets, lowest first, and the keys on both sides.

    `source_keys` are the keys to collect, as expressions on the rows of the filter source. `keys` are the keys to look
    up, as expressions on the rows of the filtered side; `ids` are the columns that they are computed from.
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

    `top` is the topmost operator; None for a sink, or for a node that only forwards rows. The filter paths of a join
    are in the order of `JoinOperator.filters`; `join_keys` are its keys by side.
    """

    top: LogicalNode | None
    join_keys: Mapping[Side, tuple[Expression, ...]] = field(default_factory=dict)
    filter_paths: tuple[SparkFilterPath, ...] = ()


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The part of Spark's plan for a source.

    `static_parallelism` is the parallelism that the source sets, or that is inferred, before the job runs; else None.
    `filtered` is the leaf with the filters directly above it. `scan` splits and reads the source.
    """

    leaf: LogicalNode
    coordinator: SourceCoordinator
    options: ScanOptions
    static_parallelism: int | None
    filtered: LogicalNode
    scan: Scan

    def with_filters(self, plan: LogicalPlan) -> SourcePlan:
        """Return the source with additional filters; `plan` is its relation with all filters above it."""
        scan, inferring_source = self.scan.with_filters(plan), self.coordinator.source
        user_source = None if inferring_source is self.scan else inferring_source  # any other is the user's
        coordinator = SourceCoordinator(self.coordinator.name, scan.parallelism_source(user_source))
        return replace(self, scan=scan, coordinator=coordinator)


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """A job that Spark runs unchanged, with the reason; `source_bytes` is None if the size is not the reason."""

    outputs: Sequence[Output]
    source_bytes: int | None
    reason: str

    def decision(self, job: str) -> Choice:
        """Return the decision that Spark runs a job."""
        figures = {} if self.source_bytes is None else {"bytes in": self.source_bytes}
        option = None if self.source_bytes is None else WHOLE_QUERY_THRESHOLD.key
        explanation = Explanation(f"Spark runs this query unchanged, as {self.reason}", option)
        return Choice(
            DecisionKind.WHOLE_QUERY, NameRef(job), "handed to Spark whole", self.reason, figures, explanation
        )


@dataclass(frozen=True, kw_only=True)
class PlanParts:
    """The parts of Spark's plan for the nodes and edges of a job, by node or edge id.

    An entry of `sources` is replaced while the job runs if a dynamic filter is added. `groups` has the exchange group
    of each edge that is not FORWARD; edges of the same group have the same partitioning. `sink_stages` has, for the
    node of a sink stage, the node of its sink and the stage. `consumer_stages` has the consumer stage of an adaptive
    exchange, by the node of the consumer.
    """

    nodes: dict[int, NodePlan] = field(default_factory=dict)
    edges: dict[str, EdgePlan] = field(default_factory=dict)
    sources: dict[int, SourcePlan] = field(default_factory=dict)
    sinks: dict[int, Sink] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    sink_stages: dict[int, tuple[int, SinkStage]] = field(default_factory=dict)
    consumer_stages: dict[int, ConsumerStage] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JobPlan(PlanParts):
    """The plan of a job.

    `user_subpartitions` has the number of subpartitions of an exchange group, if the user set it. A family is all
    groups that a node writes together, with the same number of subpartitions; `families` has the representative of the
    family of each group. `choices` are the decisions of the planner, which the job records when it starts.
    """

    graph: StreamGraph
    user_subpartitions: Mapping[int, int] = field(default_factory=dict)
    families: Mapping[int, int] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()

    def operators(self, node_id: int) -> Iterator[LogicalNode]:
        """Iterate over the operators of the user's plan that a node runs, from the top down."""
        node = self.nodes.get(node_id)
        edges = (self.edges.get(edge.id) for edge in self.graph.in_edges(node_id))
        computed_upstream = {id(edge.child) for edge in edges if edge is not None}
        todo = [] if node is None or node.top is None else [node.top]
        while todo:
            operator = todo.pop()
            if id(operator) not in computed_upstream:
                yield operator
                todo += operator.children

    def family(self, group: int) -> int:
        """Return the representative of the family of a group, see `families`."""
        return self.families.get(group, group)
