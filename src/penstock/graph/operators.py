"""What an operator of the stream graph does, and what is known of it before it runs.

A fact that is not known is None. What a strategy decides about an operator is part of it too, and changes with
`StreamNodeUpdateRequest`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.errors import GraphError
from penstock.graph.join_types import JoinType, Side

if TYPE_CHECKING:
    from penstock.graph.filter_paths import FilterPath, JoinInput


class OperatorKind(StrEnum):
    """What a stream node does, as far as deciding cares."""

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


ADDS_TASKS = frozenset({OperatorKind.UNION, OperatorKind.OPAQUE})
"""Operators whose tasks are those of all their inputs: what is given to an input is not given to the others."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of which nothing but its kind matters."""

    kind: OperatorKind


@dataclass(frozen=True, slots=True)
class ScanOperator(Operator):
    """Reads a source.

    Parameters
    ----------
    bytes
        What is read of it before filters, by the source's own statistics; None if they tell nothing.
    rows
        About how many rows it has, or None.
    table
        What people call it, empty where it has no name.
    """

    kind: OperatorKind = field(default=OperatorKind.SOURCE, init=False)
    bytes: int | None = None
    rows: int | None = None
    table: str = ""

    def __post_init__(self) -> None:
        if min(self.bytes or 0, self.rows or 0) < 0:
            raise GraphError(f"a source cannot hold {self.bytes} bytes and {self.rows} rows", hint="None is not known")


@dataclass(frozen=True, slots=True)
class CalcOperator(Operator):
    """Computes rows of single rows.

    Parameters
    ----------
    is_cheap
        Whether it is made of projections and filters alone.
    drops_columns
        Whether it is a projection that does nothing but drop columns.
    """

    kind: OperatorKind = field(default=OperatorKind.CALC, init=False)
    is_cheap: bool = False
    drops_columns: bool = False


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """What multiplies the rows before an aggregate: ROLLUP, CUBE or GROUPING SETS.

    Parameters
    ----------
    node_id
        The node whose last operator does.
    copies
        How many rows it makes of one.
    origins
        For each grouped column, the join inputs that it comes through, from the last join to the first.
    """

    node_id: int
    copies: int
    origins: tuple[tuple[JoinInput, ...], ...]


@dataclass(frozen=True, slots=True)
class AggregateOperator(Operator):
    """Aggregates groups.

    Parameters
    ----------
    not_mergeable
        Why partial results of one group cannot be merged in any order, or do not stay small; None if they can and do.
    grouping_sets
        What multiplies the rows before it, if it may be aggregated before that.
    aggregates_first
        Whether it is decided that it is aggregated before its rows are multiplied.
    keeps_values
        Whether partial results hold the distinct values of a group, and can be merged in any order.
    """

    kind: OperatorKind = field(default=OperatorKind.AGGREGATE, init=False)
    not_mergeable: str | None
    grouping_sets: GroupingSets | None = None
    aggregates_first: bool = False
    keeps_values: bool = False

    def __post_init__(self) -> None:
        if self.aggregates_first and self.grouping_sets is None:
            raise GraphError("an aggregate without grouping sets has nothing to aggregate first")


@dataclass(frozen=True, slots=True)
class WindowOperator(Operator):
    """Computes window functions.

    Parameters
    ----------
    not_divided
        Why the rows of one key cannot be divided among several tasks by their order; None if they can.
    """

    kind: OperatorKind = field(default=OperatorKind.WINDOW, init=False)
    not_divided: str | None = None


@dataclass(frozen=True, slots=True)
class JoinSide:
    """What is known of an input of an equi-join.

    Parameters
    ----------
    hint
        The join hint that the user gave the side, under Spark's name, or None.
    columns
        The ids of its columns.
    sources
        The source nodes below it.
    source_bytes
        What these sources hold before filters, as far as they tell it; None if none of them tells.
    may_shrink
        Whether the side may give much less than its sources hold: it filters, aggregates or will be filtered.
    keys
        The names of the columns that it is joined by.
    tables
        The names of the largest sources below it, the largest first.
    key_tables
        Those of them that have the columns it is joined by; empty where these are computed.
    is_aggregated
        Whether its rows are groups of theirs.
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
    """How tasks join the rows that were exchanged to them."""

    SHUFFLED_HASH = "shuffled hash join"
    SORT_MERGE = "sort-merge join"


@dataclass(frozen=True, slots=True)
class JoinSequence:
    """A chain of joins in another order.

    Parameters
    ----------
    chain
        Its nodes as the graph has them, from the first join to the last.
    joins
        Its joins in the order in which they run.
    """

    chain: tuple[int, ...]
    joins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JoinStrategy:
    """What is decided about how a join runs, besides its exchanges.

    Parameters
    ----------
    algorithm
        How its tasks join, or None while that is open.
    build
        Of a shuffled hash join, the side whose rows become the hash table.
    sequence
        Of the last join of a chain, the order in which the chain's joins run; None for the order of the graph.
    """

    algorithm: ShuffledJoin | None = None
    build: Side | None = None
    sequence: JoinSequence | None = None

    def __post_init__(self) -> None:
        if (self.algorithm is ShuffledJoin.SHUFFLED_HASH) != (self.build is not None):
            raise GraphError("a shuffled hash join has a build side, and no other join has one")


@dataclass(frozen=True, slots=True)
class JoinOperator(Operator):
    """Joins two inputs by equal keys.

    Parameters
    ----------
    type
        Its type.
    left, right
        Its inputs.
    filters
        The paths along which keys of one side can filter the other.
    condition_columns
        The ids of all columns in its condition.
    cannot_fail
        Whether its condition can raise no error, whatever rows it is given.
    strategy
        What is decided about it.
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
            raise GraphError(f"a {self.type} join cannot build its hash table of the {build} side")

    def side(self, side: Side) -> JoinSide:
        """Return one of its inputs."""
        return self.left if side is Side.LEFT else self.right

    def with_side(self, side: Side, changed: JoinSide) -> JoinOperator:
        """Return the join with one of its inputs changed."""
        return replace(self, left=changed) if side is Side.LEFT else replace(self, right=changed)

    def with_strategy(self, strategy: JoinStrategy) -> JoinOperator:
        """Return the join with another strategy."""
        return replace(self, strategy=strategy)

    @property
    def is_hinted(self) -> bool:
        """Whether the user gave a join hint."""
        return self.left.hint is not None or self.right.hint is not None

    def can_split(self, side: Side) -> bool:
        """Whether a side may be split: its type allows it, and Spark must read the side by the join's keys.

        Of all hints, ``merge`` alone is sure to make it do so: a hint that Spark cannot follow may lead to a broadcast.
        """
        return self.type.can_split(side) and {self.left.hint, self.right.hint} <= {None, "merge"}


@dataclass(frozen=True, slots=True)
class SinkOperator(Operator):
    """Writes rows to a sink.

    Parameters
    ----------
    file_size
        The bytes that a file of it should have, or None where that is not asked for.
    measures_tasks
        Whether its number of tasks is decided from what its first rows take.
    """

    kind: OperatorKind = field(default=OperatorKind.SINK, init=False)
    file_size: int | None = None
    measures_tasks: bool = False
