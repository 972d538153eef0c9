"""The topology of a job as SVG: vertices in layers, edges with partitioner and bytes, pending operators on demand."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import networkx as nx

from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.record import JobRecord

WIDTH, HEIGHT = 228, 92
_GAP_X, _GAP_Y = 40, 74
_LARGE = 600
"""Boxes from which on long edges go straight, behind what is in their way."""
_SWEEPS = 8
_CHARACTERS = 30


@dataclass(frozen=True, slots=True)
class Box:
    """A vertex, or an operator that is still pending."""

    id: str
    title: str
    lines: tuple[str, ...]
    css: str
    href: str
    tip: str


@dataclass(frozen=True, slots=True)
class Line:
    """An edge."""

    source: str
    target: str
    label: str
    css: str


def draw(record: JobRecord, *, pending: bool) -> str:
    """Return the topology of a job as an SVG document.

    Parameters
    ----------
    record
        The job.
    pending
        Whether to draw the operators that are not part of a vertex yet.
    """
    boxes = [_vertex_box(record, vertex) for vertex in record.vertices.values()]
    lines = [
        Line(edge["vertex"], vertex["id"], _label(record, edge), f"edge {vertex['state'].lower()}")
        for vertex in record.vertices.values()
        for edge in vertex["inputs"]
    ]
    if pending:
        of = record.vertex_of()
        boxes += [_pending_box(node) for node in record.nodes.values() if node["id"] not in of]
        lines += [
            Line(
                of.get(edge["source"], f"n{edge['source']}"), f"n{edge['target']}", edge["partitioner"], "edge pending"
            )
            for edge in record.edges.values()
            if edge["target"] not in of
        ]
    return _svg(boxes, lines)


def _vertex_box(record: JobRecord, vertex: dict[str, Any]) -> Box:
    tasks = "tasks undecided" if vertex["parallelism"] < 0 else show_count(vertex["parallelism"], "task")
    read, written = (show_bytes(vertex[key]) if vertex[key] >= 0 else "?" for key in ("bytes_in", "bytes_out"))
    lines = (*_wrapped(vertex["name"], 2), f"{tasks} · {vertex['state'].lower()}", f"in {read} · out {written}")
    tip = f"{vertex['name']}\n{vertex['reason']}"
    href = f"/ui/jobs/{record.id}/vertices/{vertex['id']}"
    return Box(vertex["id"], vertex["id"], lines, f"vertex {vertex['state'].lower()}", href, tip)


def _pending_box(node: dict[str, Any]) -> Box:
    numbers = (
        f"parallelism {_number(node['parallelism'])}",
        f"max parallelism {_number(node['max_parallelism'])}",
    )
    tip = f"{node['name']}\n{node['description']}\nnot yet part of a vertex"
    return Box(
        f"n{node['id']}", f"operator {node['id']}", (*_wrapped(node["name"], 2), *numbers), "vertex pending", "", tip
    )


def _number(value: int) -> str:
    return "undecided" if value < 0 else str(value)


def _label(record: JobRecord, edge: dict[str, Any]) -> str:
    name = record.edges[edge["edge"]]["partitioner"].partition("(")[0]
    written = record.vertices[edge["vertex"]]["bytes_out"]
    return f"{name} {show_bytes(written)}" if written >= 0 else name


def _wrapped(text: str, lines: int) -> tuple[str, ...]:
    found = [text[start : start + _CHARACTERS] for start in range(0, len(text), _CHARACTERS)] or [""]
    if len(found) > lines:
        found = [*found[: lines - 1], found[lines - 1][: _CHARACTERS - 1] + "…"]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where boxes stand and which way edges go, in boxes from the upper left corner; rows follow one another."""

    places: dict[str, tuple[float, float]]
    bends: dict[tuple[str, str], list[tuple[float, float]]]
    """For each edge over several rows, where it passes each row between."""


def layout(ids: Iterable[str], edges: Iterable[tuple[str, str]]) -> Layout:
    """Return a layered drawing of an acyclic graph.

    Every box stands in the row after its last input's; within rows boxes are ordered by the mean place of their
    neighbours, which leaves few crossings (Sugiyama, Tagawa, Toda 1981).
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(ids)
    graph.add_edges_from(edges)
    row_of = {name: row for row, names in enumerate(nx.topological_generations(graph)) for name in names}
    chains: dict[tuple[str, str], list[object]] = {}
    if len(graph) <= _LARGE:
        for source, target in list(graph.edges):
            between = [(source, target, row) for row in range(row_of[source] + 1, row_of[target])]
            if between:
                graph.remove_edge(source, target)
                nx.add_path(graph, [source, *between, target])
                row_of |= {bend: bend[2] for bend in between}
                chains[source, target] = list(between)
    rows: list[list[Any]] = [[] for _ in range(max(row_of.values(), default=-1) + 1)]
    for name, row in row_of.items():
        rows[row].append(name)
    place = {name: float(number) for names in rows for number, name in enumerate(names)}
    for sweep in range(_SWEEPS):
        neighbours = graph.predecessors if sweep % 2 == 0 else graph.successors
        for names in rows if sweep % 2 == 0 else reversed(rows):
            means = {name: _mean([place[other] for other in neighbours(name)], place[name]) for name in names}
            names.sort(key=means.__getitem__)
            place |= {name: number - (len(names) - 1) / 2 for number, name in enumerate(names)}
    left = min(place.values(), default=0.0)
    spots = {name: (place[name] - left, float(row_of[name])) for name in row_of}
    bends = {edge: [spots.pop(bend) for bend in chain] for edge, chain in chains.items()}
    return Layout(spots, bends)


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _svg(boxes: list[Box], lines: list[Line]) -> str:
    found = layout((box.id for box in boxes), ((line.source, line.target) for line in lines))
    middles = {name: _middle(place) for name, place in found.places.items()}
    width = max((x for x, _ in middles.values()), default=0) + WIDTH / 2 + 20
    height = max((y for _, y in middles.values()), default=0) + HEIGHT / 2 + 20
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="group" aria-label="Topology of the job">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>'
    )
    parts = [start]
    parts += [_line(line, middles, found.bends.get((line.source, line.target), [])) for line in lines]
    parts += [_box(box, *middles[box.id]) for box in boxes]
    parts.append("</svg>")
    return "".join(parts)


def _middle(place: tuple[float, float]) -> tuple[float, float]:
    return place[0] * (WIDTH + _GAP_X) + WIDTH / 2 + 20, place[1] * (HEIGHT + _GAP_Y) + HEIGHT / 2 + 20


def _line(line: Line, middles: dict[str, tuple[float, float]], bends: list[tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = middles[line.source], middles[line.target]
    points = [(x1, y1 + HEIGHT / 2), *map(_middle, bends), (x2, y2 - HEIGHT / 2)]
    path = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (from_x, from_y), (to_x, to_y) in pairwise(points):
        bend = max((to_y - from_y) / 2, 20)
        path.append(f"C{from_x:.0f} {from_y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}")
    place = f'x="{(points[0][0] + points[1][0]) / 2:.0f}" y="{(points[0][1] + points[1][1]) / 2:.0f}"'
    return (
        f'<path class="{line.css}" d="{"".join(path)}" marker-end="url(#arrow)"/>'
        f'<text class="label" {place} text-anchor="middle">{escape(line.label[:34])}</text>'
    )


def _box(box: Box, x: float, y: float) -> str:
    left, top = x - WIDTH / 2, y - HEIGHT / 2
    texts = "".join(
        f'<text x="{left + 12:.0f}" y="{top + 36 + 16 * number:.0f}">{escape(text)}</text>'
        for number, text in enumerate(box.lines)
    )
    body = (
        f'<g class="{box.css}" data-id="{escape(box.id)}"><title>{escape(box.tip)}</title>'
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="10"/>'
        f'<text class="title" x="{left + 12:.0f}" y="{top + 19:.0f}">{escape(box.title)}</text>{texts}</g>'
    )
    if not box.href:
        return body
    return f'<a href="{escape(box.href)}" aria-label="{escape(f"vertex {box.title}, {box.lines[0]}")}">{body}</a>'
