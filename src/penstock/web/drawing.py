"""The topology of a job as SVG: vertices in layers, edges with partitioner and bytes, pending operators on demand."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from fast_sugiyama import from_edges

from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.history.record import JobRecord

WIDTH, HEIGHT = 228, 92
_GAP_X, _GAP_Y = 40, 74
_LARGE = 600
"""Boxes from which on crossings are looked for less thoroughly."""
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
    numbers = f"parallelism {_number(node['parallelism'])} · max {_number(node['max_parallelism'])}"
    tip = f"{node['name']}\n{node['description']}\nnot yet part of a vertex"
    return Box(
        f"n{node['id']}", f"operator {node['id']}", (*_wrapped(node["name"], 2), numbers), "vertex pending", "", tip
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


def layout(ids: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return the middle of each box in a layered drawing (Sugiyama), in boxes from the upper left corner."""
    names = list(ids)
    numbers = {name: number for number, name in enumerate(names)}
    pairs = sorted({(numbers[source], numbers[target]) for source, target in edges})
    places: dict[str, tuple[float, float]] = {}
    across = 0.0
    if pairs:
        thorough = len(names) <= _LARGE
        parts = from_edges(pairs, vertex_spacing=1, dummy_vertices=thorough, transpose=thorough, ranking_type="up")
        for positions, width, height, _ in parts:
            for number, (x, y) in positions:
                # Numbers beyond are bends of long edges.
                if int(number) < len(names):
                    places[names[int(number)]] = (across + x, height - y)
            across += width + 1
    for name in names:
        if name not in places:
            places[name] = (across, 0.0)
            across += 1
    left, top = (min((place[axis] for place in places.values()), default=0.0) for axis in (0, 1))
    return {name: (x - left, y - top) for name, (x, y) in places.items()}


def _svg(boxes: list[Box], lines: list[Line]) -> str:
    places = layout((box.id for box in boxes), ((line.source, line.target) for line in lines))
    step_x, step_y = WIDTH + _GAP_X, HEIGHT + _GAP_Y
    middles = {name: (x * step_x + WIDTH / 2 + 20, y * step_y + HEIGHT / 2 + 20) for name, (x, y) in places.items()}
    width = max((x for x, _ in middles.values()), default=0) + WIDTH / 2 + 20
    height = max((y for _, y in middles.values()), default=0) + HEIGHT / 2 + 20
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="group" aria-label="Topology of the job">'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" class="head"/></marker></defs>'
    )
    parts = [start]
    parts += [_line(line, middles) for line in lines]
    parts += [_box(box, *middles[box.id]) for box in boxes]
    parts.append("</svg>")
    return "".join(parts)


def _line(line: Line, middles: dict[str, tuple[float, float]]) -> str:
    x1, y1 = middles[line.source]
    x2, y2 = middles[line.target]
    y1, y2 = y1 + HEIGHT / 2, y2 - HEIGHT / 2
    bend = max((y2 - y1) / 2, 20)
    path = f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} {y2:.0f}"
    place = f'x="{(x1 + x2) / 2:.0f}" y="{(y1 + y2) / 2:.0f}"'
    return (
        f'<path class="{line.css}" d="{path}" marker-end="url(#arrow)"/>'
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
