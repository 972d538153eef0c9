"""Labels of the parts of a graph for users, derived from the tables and keys of the query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.graph.join_types import Side
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
    key_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.graph.job_graph import JobVertex
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

_SUFFIX = re.compile(r"\.(parquet|orc|csv|json|avro|txt)(\.\w+)?$", re.IGNORECASE)
_CATALOG = "spark_catalog."
_NAMES = 3
"""Tables or columns in a list; of longer lists, the rest is counted."""
NAMED_TABLES = 32
"""Table names stored per join side, those of the largest tables; a graph may have thousands."""
_LENGTH = 40
"""Characters of a table's name; the text of a pushed-down subquery can be long."""
_NAMELESS_KEY = re.compile(r"^_groupingexpression\b|\bnone(?=#\d)")
"""Spark's names of keys that are not columns."""
_COUNT = re.compile(r"#\d+L?\b| ASC NULLS FIRST| NULLS LAST$")


def table_name(source: str) -> str:
    """Return the label of a source: its name without file extension, shortened."""
    name = " ".join(_SUFFIX.sub("", source).removeprefix(_CATALOG).split())
    return name if len(name) <= _LENGTH else f"{name[: _LENGTH - 1]}…"


def listed(names: Sequence[str], noun: str, total: int = 0) -> str:
    """Return names as an enumeration; empty if there are none.

    `names` and `noun` are the names, and the plural of what they name. `total` is the number of names, if `names` is
    incomplete.

    >>> listed(["a", "b", "c", "d"], "columns")
    'a, b and 2 more columns'
    """
    if len(names) > _NAMES:
        names = [*names[: _NAMES - 1], f"{max(len(names), total) - _NAMES + 1:,} more {noun}"]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def side_name(join: JoinOperator, side: Side) -> str:
    """Return the label of a join side: ``customer with nation``."""
    facts = join.side(side)
    first, *others = facts.tables or (f"the {side} side",)
    total = len(facts.sources) - 1 if len(facts.tables) == NAMED_TABLES else 0
    groups = "groups of " if facts.is_aggregated else ""
    number = max(len(others), total)
    more = listed(others, "tables") if number <= _NAMES else f"{number:,} more tables"
    return groups + first + (f" with {more}" if others else "")


def tables_of(join: JoinOperator) -> tuple[str, ...]:
    """Return the tables of both sides of a join."""
    return tuple(dict.fromkeys((*join.left.tables, *join.right.tables)))


def keys_of(join: JoinOperator, side: Side) -> str:
    """Return the join keys of a side, such as `` on o_custkey``; empty if they have no names."""
    keys = join.side(side).keys
    return f" on {listed(keys, 'columns')}" if keys else ""


def join_name(join: JoinOperator, first: Side = Side.LEFT) -> str:
    """Return the label of a join: ``orders join customer on o_custkey``.

    With many tables below both sides, the labels of both may be equal: ``groups of orders with 9 more tables join
    others like them on o_custkey``.
    """
    if not (join.left.tables or join.right.tables):
        return f"join{keys_of(join, first)}"
    name, other = _key_tables(join, first), _key_tables(join, first.other)
    if name == other and not join.side(first).key_tables:
        other = "others like them"
    return f"{name} join {other}{keys_of(join, first)}"


def _key_tables(join: JoinOperator, side: Side) -> str:
    """Return the tables that contain a side's keys, or the label of the side if these are unknown."""
    return listed(join.side(side).key_tables, "tables") or side_name(join, side)


def has_user_name(node: StreamNode) -> bool:
    """Whether a join has a name from the user; the labels of others name their tables."""
    return node.name != "Join" and node.location is not None


def tables_below(graph: StreamGraph, node_id: int) -> tuple[str, ...]:
    """Return the labels of the sources below a node."""
    tables: dict[str, None] = {}
    todo, seen = [node_id], {node_id}
    while todo:
        current = todo.pop()
        operator = graph.node(current).operator
        if isinstance(operator, ScanOperator):
            tables[operator.table or graph.node(current).name.removeprefix("Source: ")] = None
        for edge in reversed(graph.in_edges(current)):
            if edge.source_id not in seen:
                seen.add(edge.source_id)
                todo.append(edge.source_id)
    return tuple(tables)


_VERBS = {
    OperatorKind.AGGREGATE: ("aggregate", {"Aggregate", "Global aggregate"}),
    OperatorKind.WINDOW: ("window", {"Window", "WindowGroupLimit"}),
    OperatorKind.SORT: ("sort", {"Sort"}),
}
"""Labels of operators by key, and their names if Penstock named them; any other name is the user's."""

_LABELS = {
    "GlobalLimit": "limit",
    "LocalLimit": "limit",
    "Union": "union",
    "Expand": "copy rows for each grouping set",
    "Generate": "explode",
    "Deduplicate": "distinct",
    "Repartition": "repartition",
}
"""Labels of other Spark operators."""
_RETURNED = {"collect", "to_arrow", "to_pandas", "count", "materialize", "rows", "show"}
"""Sinks that return rows to the program."""
SPARKS_WRITER = "Spark's writer"
"""The sink of a query whose rows Spark writes."""
_PROJECTIONS = {"Calc", "Project", "Filter", "Read shared"}


def node_name(graph: StreamGraph, node: StreamNode, columns: Mapping[str, str]) -> str:
    """Return the label of an operator; empty if users need not see it, as for a projection.

    `columns` has the names of columns by id, see `column_names`.
    """
    operator, name = node.operator, node.name
    verb, own_names = _VERBS.get(node.kind, ("", set()))
    if name in own_names:
        return verb + _by(graph.in_edges(node.id), columns)
    match operator:
        case ScanOperator(table=table):
            name = table or name.removeprefix("Source: ")
        case JoinOperator() if not has_user_name(node):
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
            name = _LABELS.get(name, name)
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


def started_already(node: StreamNode) -> str:
    """Return the reason for refusing a change of an operator whose vertex has started."""
    return f"{_NOUNS.get(node.kind, 'the step')} has started already"


def edge_label(partitioner: Partitioner, columns: Mapping[str, str]) -> str:
    """Return how a partitioner distributes rows, as text; empty if rows stay in their task."""
    label = "in even parts"
    match partitioner:
        case AdaptiveRebalancePartitioner() | AdaptiveRescalePartitioner():
            label = "to the least loaded task"
        case PulledRebalancePartitioner():
            label = "to the next free task"
        case Partitioner(chained=True):
            label = ""
        case HashPartitioner(keys):
            label = f"shuffled by {_columns(keys, columns)}"
        case RangePartitioner(keys):
            label = f"sorted into ranges by {_columns(keys, columns)}"
        case BroadcastPartitioner():
            label = "broadcast"
        case GlobalPartitioner():
            label = "to one task"
    return label


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
    names = (_NAMELESS_KEY.sub("an expression", readable(key_text(key), columns)) for key in keys)
    return listed([_COUNT.sub("", name) for name in names], "columns")


def vertex_name(graph: StreamGraph, vertex: JobVertex, columns: Mapping[str, str]) -> str:
    """Return the label of a vertex: ``lineitem → join orders on l_orderkey → aggregate by n_name``."""
    parts: list[str] = []
    for node in map(graph.node, _execution_order(graph, vertex)):
        probe = _chained_side(graph, node, vertex)
        if isinstance(node.operator, JoinOperator) and not has_user_name(node) and probe is not None:
            parts.append(f"join {_key_tables(node.operator, probe.other)}{keys_of(node.operator, probe)}")
        else:
            parts.append(node_name(graph, node, columns))
    # Partial aggregates run before the rows are written.
    readers = (graph.node(edge.target_id) for edge in graph.out_edges(vertex.tail_id) if not edge.is_forward)
    parts += [
        f"partial {node_name(graph, reader, columns)}"
        for reader in readers
        if isinstance(reader.operator, AggregateOperator) and reader.name in _VERBS[reader.kind][1]
    ]
    if not any(parts) and all(graph.node(node_id).kind is OperatorKind.CALC for node_id in vertex.node_ids):
        return "choose columns"
    return " → ".join(filter(None, parts)) or vertex.name


def _execution_order(graph: StreamGraph, vertex: JobVertex) -> list[int]:
    """Return the node ids of a vertex, its joins in the decided order."""
    ids = list(vertex.node_ids)
    for node in map(graph.node, vertex.node_ids):
        sequence = node.operator.strategy.sequence if isinstance(node.operator, JoinOperator) else None
        if sequence is not None and set(sequence.joins) <= set(ids):
            joins = iter(sequence.joins)
            ids = [next(joins) if node_id in sequence.joins else node_id for node_id in ids]
    return ids


def _chained_side(graph: StreamGraph, node: StreamNode, vertex: JobVertex) -> Side | None:
    """Return the join side whose rows come from the join's own vertex; None if that is no side or both."""
    inside = [edge for edge in graph.in_edges(node.id) if edge.source_id in vertex.node_ids]
    return Side.of_input(inside[0].type_number) if len(inside) == 1 else None


_NAMED = re.compile(r"([A-Za-z_]\w*)#(\d+)L?\b")
_NAMELESS = re.compile(r"\bnone#(\d+)L?\b")


def column_names(nodes: Iterable[StreamNode]) -> dict[str, str]:
    """Return the names of columns by their Spark expression ids, from the descriptions of operators."""
    return {number: name for node in nodes for name, number in _NAMED.findall(node.description) if name != "none"}


def readable(text: str, names: Mapping[str, str]) -> str:
    """Return the text of a partitioner with the names of its columns, as far as they are in `names`."""
    return _NAMELESS.sub(lambda match: names.get(match[1], match[0]), text)
