"""What people call the parts of a graph: by the tables and keys of their query, never by numbers of nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.graph.join_types import Side
from penstock.graph.naming import readable
from penstock.graph.operators import AggregateOperator, JoinOperator, OperatorKind, ScanOperator
from penstock.graph.partitioner import (
    AdaptiveRebalancePartitioner,
    AdaptiveRescalePartitioner,
    BroadcastPartitioner,
    ForwardForConsecutiveHashPartitioner,
    GlobalPartitioner,
    HashPartitioner,
    Partitioner,
    PulledRebalancePartitioner,
    RangePartitioner,
    text_of_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.graph.job_graph import JobVertex
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

_SUFFIX = re.compile(r"\.(parquet|orc|csv|json|avro|txt)(\.\w+)?$", re.IGNORECASE)
_CATALOG = "spark_catalog."
_NAMES = 3
"""Tables or columns that are named; of more, the rest is counted."""
NAMED_TABLES = 32
"""Tables of a side of a join whose names are kept, the largest ones; a graph may have thousands."""
_LENGTH = 40
"""Characters of a table's name; a subquery that a database is asked can be long."""
_NAMELESS_KEY = re.compile(r"^_groupingexpression\b|\bnone(?=#\d)")
"""What Spark calls keys that are no columns."""
_COUNT = re.compile(r"#\d+L?\b| ASC NULLS FIRST| NULLS LAST$")


def table_name(source: str) -> str:
    """Return what people call a source: without the ending of a file, and of bounded length."""
    name = " ".join(_SUFFIX.sub("", source).removeprefix(_CATALOG).split())
    return name if len(name) <= _LENGTH else f"{name[: _LENGTH - 1]}…"


def listed(names: Sequence[str], noun: str, total: int = 0) -> str:
    """Return names as a list in words: ``a, b and 2 more columns``; empty if there are none.

    Parameters
    ----------
    names, noun
        The names, and what many of them are.
    total
        How many there are, if these are not all.
    """
    if len(names) > _NAMES:
        names = [*names[: _NAMES - 1], f"{max(len(names), total) - _NAMES + 1:,} more {noun}"]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def called(join: JoinOperator, side: Side) -> str:
    """Return what people call a side of a join: ``customer with nation``."""
    known = join.side(side)
    first, *others = known.tables or (f"the {side} side",)
    total = len(known.sources) - 1 if len(known.tables) == NAMED_TABLES else 0
    groups = "groups of " if known.is_aggregated else ""
    number = max(len(others), total)
    more = listed(others, "tables") if number <= _NAMES else f"{number:,} more tables"
    return groups + first + (f" with {more}" if others else "")


def tables_of(join: JoinOperator) -> tuple[str, ...]:
    """Return the tables of both sides of a join."""
    return tuple(dict.fromkeys((*join.left.tables, *join.right.tables)))


def keys_of(join: JoinOperator, side: Side) -> str:
    """Return the columns that a side is joined by: `` on o_custkey``; empty where they have no names."""
    keys = join.side(side).keys
    return f" on {listed(keys, 'columns')}" if keys else ""


def join_name(join: JoinOperator, first: Side = Side.LEFT) -> str:
    """Return what people call a join: ``orders join customer on o_custkey``.

    Where many tables lie below both sides, these may be called alike: ``groups of orders with 9 more tables join others
    like them on o_custkey``.
    """
    if not (join.left.tables or join.right.tables):
        return f"join{keys_of(join, first)}"
    one, other = _owner(join, first), _owner(join, first.other)
    if one == other and not join.side(first).key_tables:
        other = "others like them"
    return f"{one} join {other}{keys_of(join, first)}"


def _owner(join: JoinOperator, side: Side) -> str:
    """Return the tables that a side's keys come from, as people write a join; all of its tables if that is open."""
    return listed(join.side(side).key_tables, "tables") or called(join, side)


def is_named(node: StreamNode) -> bool:
    """Whether a user gave a join a name; all others are called by their tables."""
    return node.name != "Join" and node.location is not None


def tables_below(graph: StreamGraph, node_id: int) -> tuple[str, ...]:
    """Return the names of the sources that a node's rows come from."""
    found: dict[str, None] = {}
    todo, seen = [node_id], {node_id}
    while todo:
        current = todo.pop()
        operator = graph.node(current).operator
        if isinstance(operator, ScanOperator):
            found[operator.table or graph.node(current).name.removeprefix("Source: ")] = None
        for edge in reversed(graph.in_edges(current)):
            if edge.source_id not in seen:
                seen.add(edge.source_id)
                todo.append(edge.source_id)
    return tuple(found)


_VERBS = {
    OperatorKind.AGGREGATE: ("aggregate", {"Aggregate", "Global aggregate"}),
    OperatorKind.WINDOW: ("window", {"Window", "WindowGroupLimit"}),
    OperatorKind.SORT: ("sort", {"Sort"}),
}
"""What people call operators by keys, and the names that Penstock gives them: any other is the user's."""

_WORDS = {
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Union": "union",
    "Expand": "copy rows for each grouping set",
    "Generate": "explode",
    "Deduplicate": "distinct",
    "Repartition": "repartition",
}
"""What people call other operators of Spark."""
_RETURNED = {"collect", "to_arrow", "to_pandas", "count", "materialize", "rows", "show"}
"""Sinks that give rows back to the program."""
SPARKS_WRITER = "Spark's writer"
"""The sink of a query whose rows Spark itself writes."""
_PROJECTIONS = {"Calc", "Project", "Filter", "Read shared"}


def node_name(graph: StreamGraph, node: StreamNode, columns: Mapping[str, str]) -> str:
    """Return what people call an operator; empty for one that is not worth a word, as a projection.

    Parameters
    ----------
    columns
        The names of columns, see `naming.column_names`.
    """
    operator, name = node.operator, node.name
    verb, ours = _VERBS.get(node.kind, ("", set()))
    if name in ours:
        return verb + _by(graph.in_edges(node.id), columns)
    match operator:
        case ScanOperator(table=table):
            name = table or name.removeprefix("Source: ")
        case JoinOperator() if not is_named(node):
            name = join_name(operator)
        case _ if node.kind is OperatorKind.JOIN and name == "Join":
            name = f"join of {listed(tables_below(graph, node.id), 'tables')}"
        case _ if node.kind is OperatorKind.SINK:
            name = name.removeprefix("Sink: ")
            prefix = "write by " if name == SPARKS_WRITER else "write to "
            name = "return rows" if name in _RETURNED else prefix + name
        case _ if node.kind is OperatorKind.CALC and name in _PROJECTIONS:
            name = ""
        case _:
            name = _WORDS.get(name, name)
    return name


_NOUNS = {
    OperatorKind.AGGREGATE: "the aggregate",
    OperatorKind.JOIN: "the join",
    OperatorKind.SINK: "the write",
    OperatorKind.SORT: "the sort",
    OperatorKind.SOURCE: "the reading of the table",
    OperatorKind.UNION: "the union",
    OperatorKind.WINDOW: "the window",
}


def has_started(node: StreamNode) -> str:
    """Return that an operator is part of a step by now, so that it stays as it is."""
    return f"{_NOUNS.get(node.kind, 'the step')} has started already"


def edge_words(partitioner: Partitioner, columns: Mapping[str, str]) -> str:
    """Return how rows are distributed, in words; empty where they stay in their task."""
    words = "in even parts"
    match partitioner:
        case AdaptiveRebalancePartitioner() | AdaptiveRescalePartitioner():
            words = "to the least loaded task"
        case PulledRebalancePartitioner():
            words = "to the next free task"
        case Partitioner(chained=True):
            words = ""
        case HashPartitioner(keys):
            words = f"shuffled by {_columns(keys, columns)}"
        case RangePartitioner(keys):
            words = f"sorted into ranges by {_columns(keys, columns)}"
        case BroadcastPartitioner():
            words = "broadcast"
        case GlobalPartitioner():
            words = "to one task"
    return words


def _by(edges: Iterable[StreamEdge], columns: Mapping[str, str]) -> str:
    for edge in edges:
        match edge.partitioner:
            case (
                HashPartitioner(keys)
                | RangePartitioner(keys)
                | ForwardForConsecutiveHashPartitioner(HashPartitioner(keys))
            ):
                return f" by {_columns(keys, columns)}"
    return ""


def _columns(keys: Sequence[str], columns: Mapping[str, str]) -> str:
    names = (_NAMELESS_KEY.sub("an expression", readable(text_of_key(key), columns)) for key in keys)
    return listed([_COUNT.sub("", name) for name in names], "columns")


def vertex_name(graph: StreamGraph, vertex: JobVertex, columns: Mapping[str, str]) -> str:
    """Return what people call a vertex: ``lineitem → join orders on l_orderkey → aggregate by n_name``."""
    parts: list[str] = []
    for node in map(graph.node, _as_they_run(graph, vertex)):
        probe = _chained_side(graph, node, vertex)
        if isinstance(node.operator, JoinOperator) and not is_named(node) and probe is not None:
            parts.append(f"join {_owner(node.operator, probe.other)}{keys_of(node.operator, probe)}")
        else:
            parts.append(node_name(graph, node, columns))
    parts += _partial_aggregates(graph, vertex, columns)
    if not any(parts) and all(graph.node(node_id).kind is OperatorKind.CALC for node_id in vertex.node_ids):
        return "choose columns"
    return " → ".join(filter(None, parts)) or vertex.name


def _partial_aggregates(graph: StreamGraph, vertex: JobVertex, columns: Mapping[str, str]) -> list[str]:
    """Return what Spark aggregates before it shuffles rows to an aggregate: the step that writes them does that."""
    readers = [graph.node(edge.target_id) for edge in graph.out_edges(vertex.tail_id) if not edge.is_forward]
    return [
        f"partial {node_name(graph, one, columns)}"
        for one in readers
        if isinstance(one.operator, AggregateOperator) and one.name in _VERBS[one.kind][1]
    ]


def _as_they_run(graph: StreamGraph, vertex: JobVertex) -> list[int]:
    """Return the operators of a vertex, its joins in the order that was decided."""
    ids = list(vertex.node_ids)
    for node in map(graph.node, vertex.node_ids):
        sequence = node.operator.strategy.sequence if isinstance(node.operator, JoinOperator) else None
        places = [] if sequence is None else [place for place, one in enumerate(ids) if one in sequence.joins]
        if sequence is not None and len(places) == len(sequence.joins):
            for place, join in zip(places, sequence.joins, strict=True):
                ids[place] = join
    return ids


def _chained_side(graph: StreamGraph, node: StreamNode, vertex: JobVertex) -> Side | None:
    """Return the one side of a join whose rows come from its own vertex, None if there is not one."""
    inside = [edge for edge in graph.in_edges(node.id) if edge.source_id in vertex.node_ids]
    return Side.of_input(inside[0].type_number) if len(inside) == 1 else None
