"""Equal parts of plans that ran several times, in one query or in several."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock.doctor.finding import Finding, Kind
from penstock.doctor.records import MAX_TEXT
from penstock.doctor.timeline import union_seconds

if TYPE_CHECKING:
    from penstock.doctor.records import Application, PlanNode, Query, Stage
    from penstock.doctor.timeline import Timeline

_PASSED = ("Project", "Exchange", "ReusedExchange", "Sort")
"""Nodes that are ignored in comparisons: the columns that a query needs differ, and rows stay equal."""
_CHEAP = (
    "Project",
    "Filter",
    "HashAggregate",
    "SortAggregate",
    "ObjectHashAggregate",
    "LocalLimit",
    "GlobalLimit",
    "CollectLimit",
)
"""Nodes that cost little compared with the part below them in the same stage."""
_FREE_LEAVES = ("LocalTableScan", "InMemoryTableScan", "Scan OneRowRelation", "EmptyRelation")
_AGGREGATE_KEYS = re.compile(r"keys?=(\[.*?\]), functions=")
_AMBIGUOUS = re.compile(r"<lambda>|\bUDF\(|ExistingRDD|MicroBatch")
"""Nodes that may differ although their texts are equal: then the numbers of their columns must be equal too.

So may Python functions, which have only a name, and texts whose end is missing.
"""
_PYTHON_RESULT = re.compile(r"(?<=pythonUDF)\d+#\d+L?")
"""The column of the result of a Python function: Spark numbers it again in every action."""
_NUMBERS = re.compile(r"\[plan_id=\d+\]|\d+ metadata|batch id = \d+")


@dataclass(frozen=True, slots=True)
class _Part:
    """An executed occurrence of a part of a plan. `seconds` has the intervals that it took, in seconds."""

    query: Query
    nodes: list[PlanNode]
    intervals: list[tuple[float, float]]

    @property
    def top(self) -> PlanNode:
        return self.nodes[0]


def check(application: Application, _: Timeline) -> Iterator[Finding]:
    """Yield a finding per largest part that ran at least twice.

    Lost seconds: the time in which stages of the part ran, less that of its longest run. Of a stage that also does
    other work than aggregating the rows of the part, only the measured scan time counts, divided by the number of tasks
    that ran at a time.
    """
    groups: defaultdict[str, list[tuple[Query, PlanNode]]] = defaultdict(list)
    for query in application.queries.values():
        for key, node in _keys(query):
            groups[key].append((query, node))
    covered: set[int] = set()
    repeated = [occurrences for occurrences in groups.values() if len(occurrences) > 1]
    for occurrences in sorted(repeated, key=lambda occurrences: -len(_executed(occurrences[0][1]))):
        parts = [_part(application, query, node) for query, node in _distinct(occurrences) if id(node) not in covered]
        parts = [part for part in parts if part.intervals]
        if len(parts) < 2:
            continue
        covered |= {id(node) for part in parts for node in part.nodes}
        yield _finding(application, parts)


def _keys(query: Query) -> Iterator[tuple[str, PlanNode]]:
    """Yield a key for each executed node of a query that is equal for equal parts of plans."""
    keys: dict[int, str] = {}
    nodes = [] if query.plan is None else _executed(query.plan)
    for node in reversed(nodes):  # children come first
        inputs = "|".join(keys.get(id(child), "") for child in node.children)
        if node.is_structural or node.name in _PASSED or node.name == "BroadcastExchange":
            keys[id(node)] = inputs
        elif node.name.startswith(_FREE_LEAVES):
            keys[id(node)] = node.text
        else:
            text = f"{node.name}({_detail(node)})[{inputs}]"
            keys[id(node)] = blake2b(text.encode(), digest_size=16).hexdigest()
            if "rand(" not in node.text and "uuid(" not in node.text:
                yield keys[id(node)], node


def _executed(top: PlanNode) -> list[PlanNode]:
    return list(top.walk(caches=False))


def _detail(node: PlanNode) -> str:
    """Return what identifies the rows of a node, without the columns and aggregates that a query needs of them."""
    if node.metadata.get("Location"):
        items = str(sorted(node.metadata.items()))
        return f"{items} {node.text}" if _is_cut(*node.metadata.values()) else items
    if node.is_python:
        return _PYTHON_RESULT.sub("", node.text)
    if _AMBIGUOUS.search(node.text) or _is_cut(node.text):
        return node.text
    keys = _AGGREGATE_KEYS.search(node.plain_text)
    return keys[1] if keys and keys[1] != "[]" else _NUMBERS.sub("", node.plain_text)


def _is_cut(*texts: str) -> bool:
    """Return whether the end of a text is missing, so that equal texts may stand for different nodes."""
    return any("..." in text or len(text) >= MAX_TEXT for text in texts)


def _distinct(occurrences: Iterable[tuple[Query, PlanNode]]) -> list[tuple[Query, PlanNode]]:
    """Return the occurrences of each query with metrics of their own: others are the same execution."""
    distinct: dict[object, tuple[Query, PlanNode]] = {}
    for query, node in occurrences:
        metrics = frozenset(metric for part in _executed(node) for metric in part.metrics.values())
        distinct.setdefault((query.id, metrics or id(node)), (query, node))
    return list(distinct.values())


def _part(application: Application, query: Query, top: PlanNode) -> _Part:
    nodes = _executed(top)
    return _Part(
        query,
        nodes,
        [interval for stage in application.stages_of(nodes) for interval in _cost(application, stage, nodes)],
    )


def _cost(application: Application, stage: Stage, nodes: list[PlanNode]) -> Iterator[tuple[float, float]]:
    """Yield the interval of a stage if it runs only the part, else one as long as the measured scan time."""
    if not stage.tasks.succeeded.any():
        return
    start, end = float(stage.tasks.ok("launch").min()), float(stage.tasks.ok("finish").max())
    ids = {id(node) for node in nodes}
    others = [node for node in stage.nodes if id(node) not in ids and not node.is_structural and not node.is_exchange]
    if all(node.name in _CHEAP for node in others):
        yield start, end
        return
    inside = [node for node in stage.nodes if id(node) in ids]
    scan = sum(application.value(node, "scan time") for node in inside) / 1e3 / stage.tasks.concurrency
    if scan > 0:
        yield start, min(start + scan, end)


def _finding(application: Application, parts: list[_Part]) -> Finding:
    total = union_seconds(interval for part in parts for interval in part.intervals)
    longest = max(union_seconds(part.intervals) for part in parts)
    first = parts[0]
    lines = dict.fromkeys(application.where(part.query.id) for part in parts)
    shown = ", ".join(list(lines)[:4]) + (", ..." if len(lines) > 4 else "")
    queries = {part.query.id for part in parts}
    tables = [node.metadata["Location"] for node in first.nodes if "Location" in node.metadata]
    source = f" It reads {tables[0][:120]}." if tables else ""
    decision = (
        "Penstock runs equal parts of a query once."
        if len(queries) == 1
        else "Penstock runs a part once that several results of a job share (env.execute). Separate actions repeat it."
    )
    return Finding(
        Kind.RECOMPUTATION,
        max(total - longest, 0.0),
        next(iter(lines)),
        first.top.plain_text[:160],
        f"The same part of the plan ran {len(parts)} times, for {shown}; together {total:.1f} s.{source}",
        f"{decision} It does not share parts with nondeterministic functions.",
        "Call cache() on the shared DataFrame before the first action and unpersist() at the end, or write it once.",
        {"runs": len(parts), "queries": len(queries), "total_seconds": total, "longest_run_seconds": longest},
        queries=tuple(sorted(queries)),
    )
