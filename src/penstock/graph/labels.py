"""Labels of operators, edges and vertices for users, derived from the tables and keys of the query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
from penstock.graph.stream_graph import reachable

if TYPE_CHECKING:
    from penstock.graph.job_graph import JobVertex
    from penstock.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

_FILE_EXTENSION = re.compile(r"\.(parquet|orc|csv|json|avro|txt)(\.\w+)?$", re.IGNORECASE)
_DEFAULT_CATALOG_PREFIX = "spark_catalog."
_MAX_LISTED = 3
"""The maximum number of entries in an enumeration; a longer list ends with the number of further entries."""
MAX_NAMED_TABLES = 32
"""The maximum number of table names stored per join side (the largest tables); a graph may have thousands."""
_MAX_NAME_LENGTH = 40
"""The maximum characters of a table's label; the text of a pushed-down subquery can be long."""
_NAMELESS_KEY = re.compile(r"^_groupingexpression\b|\bnone(?=#\d)")
"""Spark's names of keys that are computed, not columns."""
_ID_AND_DIRECTION = re.compile(r"#\d+L?\b| ASC NULLS FIRST| NULLS LAST$")
"""The expression id and the default sort direction in the text of a key."""


def table_name(source: str) -> str:
    """Return the label of a source: its name without file extension and default catalog, shortened."""
    name = " ".join(_FILE_EXTENSION.sub("", source).removeprefix(_DEFAULT_CATALOG_PREFIX).split())
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[: _MAX_NAME_LENGTH - 1]}…"


def listed(names: Sequence[str], noun: str, total: int = 0) -> str:
    """Return names as an enumeration, or an empty string if there are none.

    `noun` is the plural noun for the names. `total` is the number of all names if `names` is incomplete.

    >>> listed(["a", "b", "c", "d"], "columns")
    'a, b and 2 more columns'
    """
    if len(names) > _MAX_LISTED:
        names = [*names[: _MAX_LISTED - 1], f"{max(len(names), total) - _MAX_LISTED + 1:,} more {noun}"]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def side_name(join: JoinOperator, side: Side) -> str:
    """Return the label of a join side: ``customer with nation``."""
    join_side = join.side(side)
    first, *others = join_side.tables or (f"the {side} side",)
    # At the maximum, some tables may not be stored, so the number of sources is used instead.
    total = len(join_side.sources) - 1 if len(join_side.tables) == MAX_NAMED_TABLES else 0
    groups = "groups of " if join_side.is_aggregated else ""
    number = max(len(others), total)
    more = listed(others, "tables") if number <= _MAX_LISTED else f"{number:,} more tables"
    return groups + first + (f" with {more}" if others else "")


def tables_of(join: JoinOperator) -> tuple[str, ...]:
    """Return the tables of both sides of a join."""
    return tuple(dict.fromkeys((*join.left.tables, *join.right.tables)))


def on_keys(join: JoinOperator, side: Side) -> str:
    """Return the join keys of a side as a phrase such as `` on o_custkey``; empty if they have no names."""
    keys = join.side(side).keys
    return f" on {listed(keys, 'columns')}" if keys else ""


def join_name(join: JoinOperator, first: Side = Side.LEFT) -> str:
    """Return the label of a join: ``orders join customer on o_custkey``; it starts with the side `first`.

    If both sides have the same label, and the tables of their keys are unknown, the second label is replaced:
    ``groups of orders with 9 more tables join others like them on o_custkey``.
    """
    if not (join.left.tables or join.right.tables):
        return f"join{on_keys(join, first)}"
    name, other_name = _key_tables(join, first), _key_tables(join, first.other)
    if name == other_name and not join.side(first).key_tables:
        other_name = "others like them"
    return f"{name} join {other_name}{on_keys(join, first)}"


def _key_tables(join: JoinOperator, side: Side) -> str:
    """Return the tables that contain the keys of a side, or the label of the side if those tables are unknown."""
    return listed(join.side(side).key_tables, "tables") or side_name(join, side)


def has_user_name(node: StreamNode) -> bool:
    """Whether the user has named a join; the label of any other join is derived from its tables."""
    return node.name != "Join" and node.location is not None


def tables_below(graph: StreamGraph, node_id: int) -> tuple[str, ...]:
    """Return the labels of the sources below a node, in the order of the inputs."""
    tables: dict[str, None] = {}
    for current in reachable(node_id, lambda n: [edge.source_id for edge in reversed(graph.in_edges(n))]):
        operator = graph.node(current).operator
        if isinstance(operator, ScanOperator):
            tables[operator.table or graph.node(current).name.removeprefix("Source: ")] = None
    return tuple(tables)


_KEYED_LABELS = {
    OperatorKind.AGGREGATE: ("aggregate", {"Aggregate", "Global aggregate"}),
    OperatorKind.WINDOW: ("window", {"Window", "WindowGroupLimit"}),
    OperatorKind.SORT: ("sort", {"Sort"}),
}
"""Labels of keyed operators, and the names that Penstock gives them; any other name is the user's."""

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
_ROW_RETURNING_SINKS = {"collect", "to_arrow", "to_pandas", "count", "materialize", "rows", "show"}
"""Sinks that return rows, or a result computed from rows, to the program."""
SPARK_WRITER = "Spark's writer"
"""The name of the sink of a query whose rows Spark writes."""
_PROJECTIONS = {"Calc", "Project", "Filter", "Read shared"}
"""Names of Calc nodes that users need not see."""


def node_name(graph: StreamGraph, node: StreamNode, columns: Mapping[str, str]) -> str:
    """Return the label of an operator; empty if users need not see the operator, such as a projection.

    `columns` has the names of columns by id, see `column_names`.
    """
    operator, name = node.operator, node.name
    label, default_names = _KEYED_LABELS.get(node.kind, ("", set()))
    if name in default_names:
        return label + _by_keys(graph.in_edges(node.id), columns)
    match operator:
        case ScanOperator(table=table):
            name = table or name.removeprefix("Source: ")
        case JoinOperator() if not has_user_name(node):
            name = join_name(operator)
        case _ if node.kind is OperatorKind.JOIN and name == "Join":
            name = f"join of {listed(tables_below(graph, node.id), 'tables')}"
        case _ if node.kind is OperatorKind.SINK:
            name = name.removeprefix("Sink: ")
            prefix = "write by " if name == SPARK_WRITER else "write to "
            name = "return rows" if name in _ROW_RETURNING_SINKS else prefix + name
        case _ if node.kind is OperatorKind.CALC and name in _PROJECTIONS:
            name = ""
        case _:
            name = _LABELS.get(name, name)
    return name


_SUBJECTS = {
    OperatorKind.AGGREGATE: "the aggregate",
    OperatorKind.JOIN: "the join",
    OperatorKind.SINK: "the write",
    OperatorKind.SORT: "the sort",
    OperatorKind.SOURCE: "the reading of the table",
    OperatorKind.UNION: "the union",
    OperatorKind.WINDOW: "the window",
}
"""Subjects of sentences about an operator."""


def started_reason(node: StreamNode) -> str:
    """Return why a change of an operator is refused: its vertex has already started."""
    return f"{_SUBJECTS.get(node.kind, 'the step')} has started already"


def edge_label(partitioner: Partitioner, columns: Mapping[str, str]) -> str:
    """Return text for how a partitioner distributes rows; empty if rows stay in their task."""
    label = "in even parts"
    match partitioner:
        case AdaptiveRebalancePartitioner() | AdaptiveRescalePartitioner():
            label = "to the least loaded task"
        case PulledRebalancePartitioner():
            label = "to the next free task"
        case Partitioner(is_chained=True):
            label = ""
        case HashPartitioner(keys):
            label = f"shuffled by {_key_names(keys, columns)}"
        case RangePartitioner(keys):
            label = f"sorted into ranges by {_key_names(keys, columns)}"
        case BroadcastPartitioner():
            label = "broadcast"
        case GlobalPartitioner():
            label = "to one task"
    return label


def _by_keys(edges: Iterable[StreamEdge], columns: Mapping[str, str]) -> str:
    for edge in edges:
        match edge.partitioner:
            case (
                HashPartitioner(keys)
                | RangePartitioner(keys)
                | ForwardForConsecutiveHashPartitioner(HashPartitioner(keys))
            ):
                return f" by {_key_names(keys, columns)}"
    return ""


def _key_names(keys: Sequence[str], columns: Mapping[str, str]) -> str:
    names = (_NAMELESS_KEY.sub("an expression", with_column_names(key_text(key), columns)) for key in keys)
    return listed([_ID_AND_DIRECTION.sub("", name) for name in names], "columns")


def vertex_name(graph: StreamGraph, vertex: JobVertex, columns: Mapping[str, str]) -> str:
    """Return the label of a vertex: ``lineitem → join orders on l_orderkey → aggregate by n_name``."""
    parts: list[str] = []
    for node in map(graph.node, _execution_order(graph, vertex)):
        chained_side = _chained_side(graph, node, vertex)
        if isinstance(node.operator, JoinOperator) and not has_user_name(node) and chained_side is not None:
            parts.append(f"join {_key_tables(node.operator, chained_side.other)}{on_keys(node.operator, chained_side)}")
        else:
            parts.append(node_name(graph, node, columns))
    # A vertex also runs the partial aggregates of its consumers before it writes its rows.
    consumers = (graph.node(edge.target_id) for edge in graph.out_edges(vertex.tail_id) if not edge.is_forward)
    parts += [
        f"partial {node_name(graph, consumer, columns)}"
        for consumer in consumers
        if isinstance(consumer.operator, AggregateOperator) and consumer.name in _KEYED_LABELS[consumer.kind][1]
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
    """Return the join side whose rows come from the vertex of the join; None if neither or both do."""
    inside = [edge for edge in graph.in_edges(node.id) if edge.source_id in vertex.node_ids]
    return Side.of_input(inside[0].type_number) if len(inside) == 1 else None


_COLUMN = re.compile(r"([A-Za-z_]\w*)#(\d+)L?\b")
_NAMELESS_COLUMN = re.compile(r"\bnone#(\d+)L?\b")


def column_names(nodes: Iterable[StreamNode]) -> dict[str, str]:
    """Return the names of columns by their Spark expression ids, from the descriptions of operators."""
    return {number: name for node in nodes for name, number in _COLUMN.findall(node.description) if name != "none"}


def with_column_names(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the names of columns that Spark calls ``none#12``; `names` has the names by expression id."""
    return _NAMELESS_COLUMN.sub(lambda match: names.get(match[1], match[0]), text)
