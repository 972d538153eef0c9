"""The graph of a job as SVG: steps in rows, edges whose width shows their bytes, pending operators on demand."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.decisions.log import DecisionKind
from penstock.graph import Side
from penstock.optimizer.dynamic_filtering import JOIN, SIDE
from penstock.web import formatting
from penstock.web.charts.layout import Layout, Point, Size, layout

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from penstock.history.record import JobRecord, NodeRecord, VertexRecord
    from penstock.web.steps import Step

WIDTH = 236.0
_PAD, _LINE, _LABEL = 12.0, 17.0, 16.0
_CHARACTERS = 29
"""The number of wide letters that fit into a box or below it."""
_THIN, _THICK = 1.5, 9.0
_MAX_LABELS, _LABEL_LINES = 3, 2
_EDGE_GAP = 22.0
"""Pixels between two edges that end at the same box."""


@dataclass(frozen=True, slots=True)
class Box:
    """A step, or a pending operator.

    Its id is that of the step, or "n" and that of the operator. `title` and `aside` are the left and the right text of
    the first line, and `tip` is its tooltip; `href` is empty without a link.
    """

    id: str
    title: str
    aside: str
    lines: tuple[str, ...]
    css: str
    href: str
    tip: str

    @property
    def height(self) -> float:
        """Its height in pixels."""
        return 2 * _PAD + _LINE * (1 + len(self.lines)) - 5


@dataclass(frozen=True, slots=True)
class Line:
    """An edge; `size` is its bytes, None if unknown."""

    source: str
    target: str
    label: str
    size: int | None
    css: str


def draw_graph(record: JobRecord, steps: Sequence[Step], critical: Collection[str] = (), *, pending: bool) -> str:
    """Return the graph of a job as an SVG document.

    `critical` are the ids of the steps on the critical path; `pending` draws operators that are not part of a step yet.
    """
    by_id = {step.id: step for step in steps}
    boxes = [_step_box(record.id, step, is_critical=step.id in critical) for step in steps]
    lines = [
        _line_of(record, by_id[edge.vertex], vertex, edge.edge, critical)
        for vertex in record.vertices.values()
        for edge in vertex.inputs
    ]
    joined = {(line.source, line.target) for line in lines}
    lines += [
        Line(source, target, f"keys filter step {by_id[target].number}", None, "edge keys")
        for source, target in key_edges(record)
        if (source, target) not in joined
    ]
    if pending:
        vertex_of = record.vertex_of()
        boxes += [_pending_box(node) for node in record.nodes.values() if node.id not in vertex_of]
        lines += [
            Line(
                vertex_of.get(edge.source, f"n{edge.source}"),
                f"n{edge.target}",
                edge.distribution,
                None,
                "edge pending",
            )
            for edge in record.edges.values()
            if edge.target not in vertex_of
        ]
    return _svg(boxes, lines)


def _step_box(job_id: str, step: Step, *, is_critical: bool) -> Box:
    duration = step.state if step.seconds is None else formatting.seconds(step.seconds)
    undecided = "" if step.state == "finished" else "tasks undecided"
    others = f" +{step.other_tasks:,}" if step.other_tasks else ""
    tasks = undecided if step.tasks is None else show_count(step.tasks, "task") + others
    wrote = "" if step.rows_out is None else formatting.rows(step.rows_out)
    figures = " · ".join(filter(None, (tasks, wrote, "continues in Spark" if step.is_delegated else "")))
    read = "" if step.bytes_in is None and step.is_delegated else f"read {formatting.size(step.bytes_in)}"
    bytes_ = " · ".join(filter(None, (read, "" if step.is_delegated else f"wrote {formatting.size(step.bytes_out)}")))
    css = f"vertex {step.state}" + (" critical" if is_critical else "")
    tip = "\n".join(filter(None, (f"Step {step.number}: {step.label}", step.state, step.reason)))
    lines = (*wrapped(step.label, 3), *filter(None, (figures, bytes_)))
    return Box(step.id, f"Step {step.number}", duration, lines, css, f"/ui/jobs/{job_id}/vertices/{step.id}", tip)


def _pending_box(node: NodeRecord) -> Box:
    tip = f"{node.name}\n{node.description}\nnot yet part of a step"
    numbers = ["tasks undecided" if node.parallelism is None else f"tasks {node.parallelism}"]
    if node.max_parallelism is not None:
        numbers.append(f"at most {node.max_parallelism}")
    lines = (*wrapped(node.display_name, 3), " · ".join(numbers))
    return Box(f"n{node.id}", "Pending", f"operator {node.id}", lines, "vertex pending", "", tip)


def _line_of(record: JobRecord, source: Step, target: VertexRecord, edge: str, critical: Collection[str]) -> Line:
    exchange = record.edges[edge].distribution
    label = exchange if source.bytes_out is None else f"{source.wrote} {exchange}"
    css = f"edge {target.state.lower()}"
    if source.id in critical and target.id in critical:
        css += " critical"
    return Line(source.id, target.id, label, source.bytes_out, css)


def key_edges(record: JobRecord) -> list[tuple[str, str]]:
    """Return the steps whose keys filter other steps: distinct pairs of vertices, the provider of the keys first."""
    vertex_of = record.vertex_of()
    sources = {(edge.target, edge.input): edge.source for edge in record.edges.values()}
    pairs: dict[tuple[str, str], None] = {}
    for decision in record.decisions:
        figures = decision.values["figures"]
        if decision.kind == DecisionKind.DYNAMIC_FILTER and {JOIN, SIDE} <= figures.keys():
            side = (str(figures[JOIN]), Side(figures[SIDE]).input_number)
            source, target = vertex_of.get(sources.get(side, "")), vertex_of.get(decision.nodes[0])
            if source and target and source != target:
                pairs[source, target] = None
    return list(pairs)


def wrapped(text: str, lines: int, characters: int = _CHARACTERS) -> tuple[str, ...]:
    """Wrap a text between words; a word or text that is too long ends with an ellipsis."""
    if len(text) <= characters:
        return (text,) if text else ()
    wrapped_lines = textwrap.wrap(
        text, characters, max_lines=lines, placeholder=" …", break_long_words=False, break_on_hyphens=False
    )
    return tuple(line if len(line) <= characters else f"{line[: characters - 1]}…" for line in wrapped_lines)


def _svg(boxes: Sequence[Box], lines: Sequence[Line]) -> str:
    labels = _labels(lines)
    sizes = {box.id: Size(WIDTH, box.height + _LABEL * len(labels.get(box.id, ()))) for box in boxes}
    drawing = layout(sizes, ((line.source, line.target) for line in lines))
    starts = {box.id: drawing.positions[box.id][1] + sizes[box.id].height for box in boxes}
    arrivals = _arrivals(lines, drawing)
    largest = max((line.size or 0 for line in lines), default=0)
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" '
        f'width="{drawing.width:.0f}" height="{drawing.height:.0f}" role="group" aria-label="Graph of the steps">'
    )
    parts = [start]
    parts += [_path(line, drawing, starts[line.source], at, largest) for line, at in zip(lines, arrivals, strict=True)]
    parts += [_under(labels[box.id], drawing.positions[box.id], box.height) for box in boxes if box.id in labels]
    parts += [_box(box, drawing.positions[box.id]) for box in boxes]
    parts.append("</svg>")
    return "".join(parts)


def _labels(lines: Iterable[Line]) -> dict[str, list[str]]:
    """Return the lines below each box: how its rows are distributed, without repetitions."""
    labels: dict[str, dict[str, None]] = {}
    for line in lines:
        source_labels = labels.setdefault(line.source, {})
        if line.label and len(source_labels) < _MAX_LABELS:
            source_labels[line.label] = None
    return {
        source: [text for label in source_labels for text in wrapped(label, _LABEL_LINES)]
        for source, source_labels in labels.items()
    }


def _arrivals(lines: Sequence[Line], drawing: Layout) -> list[float]:
    """Return the x position at which each edge ends; edges of a target are side by side, in order of origin."""
    arriving: dict[str, list[tuple[float, int]]] = {}
    for number, line in enumerate(lines):
        bends = drawing.bends.get((line.source, line.target), [])
        x = bends[-1][1][0] if bends else drawing.positions[line.source][0]
        arriving.setdefault(line.target, []).append((x, number))
    positions = [0.0] * len(lines)
    for target, edges in arriving.items():
        gap = min(_EDGE_GAP, (WIDTH - 4 * _PAD) / len(edges))
        for rank, (_, number) in enumerate(sorted(edges)):
            positions[number] = drawing.positions[target][0] + gap * (rank - (len(edges) - 1) / 2)
    return positions


def _path(line: Line, drawing: Layout, start: float, to_x: float, largest: int) -> str:
    """Return an edge from below the label of its source to the upper side of its target."""
    to_y = drawing.positions[line.target][1]
    x = drawing.positions[line.source][0]
    # First straight down, so that the edge does not cross the labels of the neighbours.
    points: list[Point] = [(x, start + 3), (x, max(drawing.floors[line.source], start + 3))]
    for entry, exit_ in drawing.bends.get((line.source, line.target), []):
        points += [entry, exit_]
    width = _THIN + (_THICK - _THIN) * ((line.size or 0) / largest) ** 0.5 if largest else _THIN
    half, tall = width / 2 + 4, width / 2 + 6
    points.append((to_x, to_y - tall))
    path = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (from_x, from_y), (next_x, next_y) in pairwise(points):
        if from_x == next_x:
            path.append(f"V{next_y:.0f}")
            continue
        bend = (next_y - from_y) / 2
        path.append(f"C{from_x:.0f} {from_y + bend:.0f} {next_x:.0f} {next_y - bend:.0f} {next_x:.0f} {next_y:.0f}")
    head = f"M{to_x:.0f} {to_y - 1:.0f}l-{half:.0f}-{tall:.0f}h{2 * round(half)}z"
    return (
        f'<path class="{line.css}" stroke-width="{width:.1f}" d="{"".join(path)}"/>'
        f'<path class="{line.css} head" d="{head}"/>'
    )


def _under(labels: Sequence[str], position: Point, height: float) -> str:
    x, y = position
    return "".join(
        f'<text class="label" x="{x:.0f}" y="{y + height + 15 + _LABEL * number:.0f}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for number, label in enumerate(labels)
    )


def _box(box: Box, position: Point) -> str:
    left, top = position[0] - WIDTH / 2, position[1]
    texts = "".join(
        f'<text x="{left + _PAD:.0f}" y="{top + 38 + _LINE * number:.0f}">{escape(text)}</text>'
        for number, text in enumerate(box.lines)
    )
    aside = (
        f'<text class="aside" x="{left + WIDTH - _PAD:.0f}" y="{top + 20:.0f}" text-anchor="end">'
        f"{escape(box.aside)}</text>"
        if box.aside
        else ""
    )
    body = (
        f'<g class="{box.css}" data-id="{escape(box.id)}"><title>{escape(box.tip)}</title>'
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{WIDTH:.0f}" height="{box.height:.0f}" rx="9"/>'
        f'<text class="title" x="{left + _PAD:.0f}" y="{top + 20:.0f}">{escape(box.title)}</text>'
        f"{aside}{texts}</g>"
    )
    if not box.href:
        return body
    name = escape(f"{box.title}, {' '.join(box.lines)}")
    return f'<a href="{escape(box.href)}" aria-label="{name}">{body}</a>'
