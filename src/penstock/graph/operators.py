"""Operators of the stream graph: facts about them, and the decisions of strategies.

Strategies change operators with `StreamNodeUpdateRequest`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from penstock.errors import GraphError
from penstock.graph.join_types import JoinType, Side


@dataclass(frozen=True, slots=True)
class JoinInput:
    """An input of a join: the id of the join and the side."""

    join_id: int
    side: Side


@dataclass(frozen=True, slots=True)
class FilterPath:
    """A path from a join down to the nodes where rows of a side can be filtered.

    `side` is the side that is filtered, by the keys of the other side. `targets` are the nodes after which the filter
    can be applied, the lowest first. `filter_source` is the join input that the keys are collected from: the other
    side, or if that is chained to the join, the nearest exchanged input below it that contains all keys. `keys_from` is
    the id of the scan that reads the first key, or None if the key is computed.

    `prunes` says whether the lowest target is a source that can skip data by the keys, such as partitions or rows of a
    database. `exact` says whether it can do so only if the filter stores exact keys.
    """

    side: Side
    targets: tuple[int, ...]
    filter_source: JoinInput
    keys_from: int | None = None
    prunes: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class DynamicFilterRef:
    """A dynamic filter to apply after a node: `path` is an index into `JoinOperator.filters` of the join."""

    join_id: int
    path: int


class OperatorKind(StrEnum):
    """The kind of an operator."""

    SOURCE = "Source"
    CALC = "Calc"
    AGGREGATE = "Aggregate"
    JOIN = "Join"
    WINDOW = "Window"
    SORT = "Sort"
    GROUPED_MAP = "GroupedMap"
    REPARTITION = "Repartition"
    UNION = "Union"
    OPAQUE = "Opaque"
    SINK = "Sink"
    SINK_STAGE = "SinkStage"


CONCATENATING_KINDS = frozenset({OperatorKind.UNION, OperatorKind.OPAQUE})
"""Operators that have the tasks of all their inputs, like Spark's union, so each input has its own parallelism."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The base of all operators, and an operator of a kind without further properties."""

    kind: OperatorKind


@dataclass(frozen=True, slots=True)
class ScanOperator(Operator):
    """Reads a source.

    `bytes` are the bytes to read before filters, from the source's statistics, and `rows` is the approximate number of
    rows; each is None if unknown. `table` is the label of the source.
    """

    kind: OperatorKind = field(default=OperatorKind.SOURCE, init=False)
    bytes: int | None = None
    rows: int | None = None
    table: str = ""

    def __post_init__(self) -> None:
        if min(self.bytes or 0, self.rows or 0) < 0:
            raise GraphError(
                f"a source cannot hold {self.bytes} bytes and {self.rows} rows", hint="use None for unknown"
            )


@dataclass(frozen=True, slots=True)
class CalcOperator(Operator):
    """Computes rows from the rows of its own task only: narrow operators, or a sort within tasks.

    `is_cheap` says whether it has only projections and filters, and `drops_columns` whether it only drops columns.
    """

    kind: OperatorKind = field(default=OperatorKind.CALC, init=False)
    is_cheap: bool = False
    drops_columns: bool = False


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """The expansion of rows before an aggregate: ROLLUP, CUBE or GROUPING SETS.

    `node_id` is the node whose last operator copies each row `copies` times. `origins` has, for each grouping column,
    the join inputs that it passes through, from the last join to the first.
    """

    node_id: int
    copies: int
    origins: tuple[tuple[JoinInput, ...], ...]


@dataclass(frozen=True, slots=True)
class AggregateOperator(Operator):
    """Aggregates groups.

    `not_mergeable` is the reason why partial results of a group cannot be merged in any order, or may grow with the
    group; None if neither holds. `grouping_sets` is the expansion before it, if rows may be aggregated before the
    expansion; else None. `aggregates_first` says whether a strategy decided to aggregate before the expansion.
    `keeps_values` says whether partial results contain the distinct values of a group, and can be merged in any order.
    """

    kind: OperatorKind = field(default=OperatorKind.AGGREGATE, init=False)
    not_mergeable: str | None
    grouping_sets: GroupingSets | None = None
    aggregates_first: bool = False
    keeps_values: bool = False

    def __post_init__(self) -> None:
        if self.aggregates_first and self.grouping_sets is None:
            raise GraphError("only an aggregate with grouping sets can aggregate first")


@dataclass(frozen=True, slots=True)
class WindowOperator(Operator):
    """Computes window functions.

    `not_divided` is the reason why the rows of a key cannot be divided among tasks by their order; None if they can.
    """

    kind: OperatorKind = field(default=OperatorKind.WINDOW, init=False)
    not_divided: str | None = None


@dataclass(frozen=True, slots=True)
class JoinSide:
    """Facts about an input of an equi-join.

    `hint` is the user's join hint for the side, by Spark's name, or None. `columns` are the ids of its columns, and
    `keys` the names of the join keys. `sources` are the ids of the source nodes below it, and `source_bytes` their
    bytes before filters, as far as statistics exist; None without statistics. `may_shrink` says whether the side may be
    much smaller than its sources: it filters, aggregates or will be filtered. `is_aggregated` says whether its rows are
    groups of rows of the sources.

    `tables` are the labels of the largest sources below it, the largest first. `key_tables` are the tables that contain
    the join keys; empty if the keys are computed.
    """

    hint: str | None = None
    columns: frozenset[str] = frozenset()
    sources: frozenset[int] = frozenset()
    source_bytes: int | None = None
    may_shrink: bool = False
    keys: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    key_tables: tuple[str, ...] = ()
    is_aggregated: bool = False


class ShuffledJoin(StrEnum):
    """The algorithm that joins exchanged rows within a task."""

    SHUFFLED_HASH = "shuffled hash join"
    SORT_MERGE = "sort-merge join"


@dataclass(frozen=True, slots=True)
class JoinSequence:
    """The order in which the joins of a chain run.

    `chain` has the node ids of the chain in the order of the graph, from the first join to the last. `joins` has the
    ids of the joins in the order in which they run.
    """

    chain: tuple[int, ...]
    joins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinStrategy:
    """The decisions about how a join runs, besides its exchanges.

    `algorithm` is None while undecided. `build` is the build side of a shuffled hash join. `sequence` is, for the last
    join of a chain, the order of the chain's joins; None for the order of the graph.
    """

    algorithm: ShuffledJoin | None = None
    build: Side | None = None
    sequence: JoinSequence | None = None

    def __post_init__(self) -> None:
        if (self.algorithm is ShuffledJoin.SHUFFLED_HASH) != (self.build is not None):
            raise GraphError("a build side is required for a shuffled hash join, and for no other join")


@dataclass(frozen=True, slots=True)
class JoinOperator(Operator):
    """Joins two inputs by equal keys.

    `filters` are the paths along which keys of a side can filter the other side. `condition_columns` are the ids of all
    columns in its condition, and `cannot_fail` says whether the condition cannot raise an error for any row.
    """

    kind: OperatorKind = field(default=OperatorKind.JOIN, init=False)
    type: JoinType
    left: JoinSide = JoinSide()
    right: JoinSide = JoinSide()
    filters: tuple[FilterPath, ...] = ()
    condition_columns: frozenset[str] = frozenset()
    cannot_fail: bool = False
    strategy: JoinStrategy = JoinStrategy()

    def __post_init__(self) -> None:
        for path in self.filters:
            if not self.type.can_filter(path.side):
                raise GraphError(f"the {path.side} side of a {self.type} join cannot be filtered by the other side")
        build = self.strategy.build
        if build is not None and not self.type.can_hash(build):
            raise GraphError(f"a {self.type} join cannot build its hash table from the {build} side")

    def side(self, side: Side) -> JoinSide:
        """Return the input of a side."""
        return self.left if side is Side.LEFT else self.right

    def with_side(self, side: Side, changed: JoinSide) -> JoinOperator:
        """Return the join with the input of a side replaced."""
        return replace(self, left=changed) if side is Side.LEFT else replace(self, right=changed)

    def with_strategy(self, strategy: JoinStrategy) -> JoinOperator:
        """Return the join with another strategy."""
        return replace(self, strategy=strategy)

    @property
    def is_hinted(self) -> bool:
        """Whether the user set a join hint."""
        return self.left.hint is not None or self.right.hint is not None

    def can_split(self, side: Side) -> bool:
        """Whether a side may be split: the join type allows it, and Spark joins by key.

        Of all hints, only ``merge`` guarantees that: if Spark cannot follow another hint, it may broadcast a side.
        """
        return self.type.can_split(side) and {self.left.hint, self.right.hint} <= {None, "merge"}


@dataclass(frozen=True, slots=True)
class SinkOperator(Operator):
    """Writes rows to a sink; `file_size` is the target bytes of a file, or None.

    `measures_tasks` says whether a trial write of its first rows decides its number of tasks.
    """

    kind: OperatorKind = field(default=OperatorKind.SINK, init=False)
    file_size: int | None = None
    measures_tasks: bool = False
