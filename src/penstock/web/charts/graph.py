"""The graph of a job as SVG: steps in rows, and edges whose width shows their bytes; optionally pending operators."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.decisions.log import DecisionKind
from penstock.graph import Side
from penstock.optimizer.dynamic_filtering import JOIN_FIGURE, SIDE_FIGURE
from penstock.web import formatting
from penstock.web.charts.layout import Layout, Point, Size, layout
from penstock.web.steps import longest_step

if TYPE_CHECKING:
    from penstock.history.record import JobRecord, NodeRecord, VertexRecord
    from penstock.web.steps import Step

WIDTH = 236.0  # the width of a box; this and the following lengths are in pixels
_PADDING, _LINE_HEIGHT, _LABEL_HEIGHT = 12.0, 17.0, 16.0
_MAX_CHARACTERS = 29
"""The most characters of a line in a box or below a box; a line of this many wide letters still fits."""
_MAX_LINES, _MAX_LONGEST_LINES = 3, 12
"""The most lines of the text in a box, and in the box of the longest step."""
_MIN_STROKE, _MAX_STROKE = 1.5, 9.0
_MAX_LABELS, _LABEL_LINES = 3, 2  # the most texts below a box, and the most lines of each text
_EDGE_GAP = 22.0
"""Pixels between two edges that end at the same box."""


@dataclass(frozen=True, slots=True)
class Box:
    """The box of a step, or of a pending operator.

    `id` is the id of the step, or "n" and the id of the operator. `title` and `aside` are the left and the right text
    of the first line, and `lines` the texts below. `href` is the target of the link, empty without a link.
    """

    id: str
    title: str
    aside: str
    lines: tuple[str, ...]
    css_class: str
    href: str
    tooltip: str

    @property
    def height(self) -> float:
        """Its height in pixels."""
        return 2 * _PADDING + _LINE_HEIGHT * (1 + len(self.lines)) - 5


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge between two boxes, by their ids; `size` is the number of bytes that `source` wrote, None if unknown."""

    source: str
    target: str
    label: str
    size: int | None
    css_class: str


def draw_graph(record: JobRecord, steps: Sequence[Step], critical: Collection[str] = (), *, pending: bool) -> str:
    """Return the graph of a job as an SVG document.

    `critical` are the ids of the steps on the critical path; `pending` adds the operators that are in no step yet.
    """
    steps_by_id = {step.id: step for step in steps}
    longest = longest_step(steps)
    boxes = [_step_box(record.id, step, is_critical=step.id in critical, is_longest=step is longest) for step in steps]
    edges = [
        _edge(record, steps_by_id[vertex_input.vertex], vertex, vertex_input.edge, critical)
        for vertex in record.vertices.values()
        for vertex_input in vertex.inputs
    ]
    connected = {(edge.source, edge.target) for edge in edges}
    edges += [
        DrawnEdge(source, target, f"keys filter step {steps_by_id[target].number}", None, "edge keys")
        for source, target in key_edges(record)
        if (source, target) not in connected
    ]
    if pending:
        vertex_ids = record.vertex_ids_by_node()
        boxes += [_pending_box(node) for node in record.nodes.values() if node.id not in vertex_ids]
        edges += [
            DrawnEdge(
                vertex_ids.get(edge.source, f"n{edge.source}"),
                f"n{edge.target}",
                edge.distribution,
                None,
                "edge pending",
            )
            for edge in record.edges.values()
            if edge.target not in vertex_ids
        ]
    return _svg(boxes, edges)


def _step_box(job_id: str, step: Step, *, is_critical: bool, is_longest: bool) -> Box:
    duration = step.state if step.seconds is None else formatting.seconds(step.seconds)
    undecided = "" if step.state == "finished" else "tasks undecided"
    extra = f" +{step.extra_tasks:,}" if step.extra_tasks else ""
    tasks = undecided if step.tasks is None else show_count(step.tasks, "task") + extra
    rows_written = "" if step.rows_out is None else formatting.rows(step.rows_out)
    figures = " · ".join(filter(None, (tasks, rows_written, "continues in Spark" if step.ends_in_spark else "")))
    bytes_read = "" if step.bytes_in is None and step.ends_in_spark else f"read {formatting.size(step.bytes_in)}"
    bytes_written = "" if step.ends_in_spark else f"wrote {formatting.size(step.bytes_out)}"
    sizes = " · ".join(filter(None, (bytes_read, bytes_written)))
    css_class = f"vertex {step.state}" + (" critical" if is_critical else "") + (" longest" if is_longest else "")
    tooltip = "\n".join(filter(None, (f"Step {step.number}: {step.label}", step.state, step.reason)))
    label = wrap_text(step.label, _MAX_LONGEST_LINES if is_longest else _MAX_LINES)
    lines = (*label, *filter(None, (figures, sizes)))
    title = f"Step {step.number}, the longest" if is_longest else f"Step {step.number}"
    href = f"/ui/jobs/{job_id}/vertices/{step.id}"
    return Box(step.id, title, duration, lines, css_class, href, tooltip)


def _pending_box(node: NodeRecord) -> Box:
    tooltip = f"{node.name}\n{node.description}\nnot yet part of a step"
    numbers = ["tasks undecided" if node.parallelism is None else f"tasks {node.parallelism}"]
    if node.max_parallelism is not None:
        numbers.append(f"at most {node.max_parallelism}")
    lines = (*wrap_text(node.display_name, _MAX_LINES), " · ".join(numbers))
    return Box(f"n{node.id}", "Pending", f"operator {node.id}", lines, "vertex pending", "", tooltip)


def _edge(record: JobRecord, source: Step, target: VertexRecord, edge_id: str, critical: Collection[str]) -> DrawnEdge:
    distribution = record.edges[edge_id].distribution
    label = distribution if source.bytes_out is None else f"{source.output_size} {distribution}"
    css_class = f"edge {target.state.lower()}"
    if source.id in critical and target.id in critical:
        css_class += " critical"
    return DrawnEdge(source.id, target.id, label, source.bytes_out, css_class)


def key_edges(record: JobRecord) -> list[tuple[str, str]]:
    """Return distinct pairs of vertex ids: a step whose keys filter another step, and the other step."""
    vertex_ids = record.vertex_ids_by_node()
    sources_by_input = {(edge.target, edge.input): edge.source for edge in record.edges.values()}
    pairs: dict[tuple[str, str], None] = {}
    for decision in record.decisions:
        figures = decision.values["figures"]
        if decision.kind == DecisionKind.DYNAMIC_FILTER and {JOIN_FIGURE, SIDE_FIGURE} <= figures.keys():
            # The keys come from a join side; the first node of the decision is the filtered operator.
            join_side = (str(figures[JOIN_FIGURE]), Side(figures[SIDE_FIGURE]).input_number)
            source = vertex_ids.get(sources_by_input.get(join_side, ""))
            target = vertex_ids.get(decision.nodes[0])
            if source and target and source != target:
                pairs[source, target] = None
    return list(pairs)


def wrap_text(text: str, max_lines: int, characters: int = _MAX_CHARACTERS) -> tuple[str, ...]:
    """Wrap a text between words; a word or text that is too long ends with an ellipsis."""
    if len(text) <= characters:
        return (text,) if text else ()
    wrapped_lines = textwrap.wrap(
        text, characters, max_lines=max_lines, placeholder=" …", break_long_words=False, break_on_hyphens=False
    )
    return tuple(line if len(line) <= characters else f"{line[: characters - 1]}…" for line in wrapped_lines)


def _svg(boxes: Sequence[Box], edges: Sequence[DrawnEdge]) -> str:
    labels = _labels(edges)
    sizes = {box.id: Size(WIDTH, box.height + _LABEL_HEIGHT * len(labels.get(box.id, ()))) for box in boxes}
    drawing = layout(sizes, ((edge.source, edge.target) for edge in edges))
    start_ys = {box.id: drawing.positions[box.id][1] + sizes[box.id].height for box in boxes}
    end_xs = _end_positions(edges, drawing)
    largest = max((edge.size or 0 for edge in edges), default=0)
    opening_tag = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}" '
        f'width="{drawing.width:.0f}" height="{drawing.height:.0f}" role="group" aria-label="Graph of the steps">'
    )
    parts = [opening_tag]
    parts += [_path(edge, drawing, start_ys[edge.source], x, largest) for edge, x in zip(edges, end_xs, strict=True)]
    parts += [_labels_below(labels[box.id], drawing.positions[box.id], box.height) for box in boxes if box.id in labels]
    parts += [_box(box, drawing.positions[box.id]) for box in boxes]
    parts.append("</svg>")
    return "".join(parts)


def _labels(edges: Iterable[DrawnEdge]) -> dict[str, list[str]]:
    """Return the lines of text below each box: the first labels of its outgoing edges, without repetitions."""
    labels: dict[str, dict[str, None]] = {}
    for edge in edges:
        source_labels = labels.setdefault(edge.source, {})
        if edge.label and len(source_labels) < _MAX_LABELS:
            source_labels[edge.label] = None
    return {
        source: [text for label in source_labels for text in wrap_text(label, _LABEL_LINES)]
        for source, source_labels in labels.items()
    }


def _end_positions(edges: Sequence[DrawnEdge], drawing: Layout) -> list[float]:
    """Return the x position at which each edge ends; edges to a box are ordered by the x from which they arrive."""
    arriving: dict[str, list[tuple[float, int]]] = {}
    for index, edge in enumerate(edges):
        bends = drawing.bends.get((edge.source, edge.target), [])
        x = bends[-1][1][0] if bends else drawing.positions[edge.source][0]
        arriving.setdefault(edge.target, []).append((x, index))
    positions = [0.0] * len(edges)
    for target, target_edges in arriving.items():
        gap = min(_EDGE_GAP, (WIDTH - 4 * _PADDING) / len(target_edges))
        for rank, (_, index) in enumerate(sorted(target_edges)):
            positions[index] = drawing.positions[target][0] + gap * (rank - (len(target_edges) - 1) / 2)
    return positions


def _path(edge: DrawnEdge, drawing: Layout, start_y: float, to_x: float, largest: int) -> str:
    """Return an edge as SVG, from below the labels of its source to its target; the widest edge has `largest` bytes."""
    to_y = drawing.positions[edge.target][1]
    x = drawing.positions[edge.source][0]
    # First straight down, so that the edge does not cross the labels of the neighbours.
    points: list[Point] = [(x, start_y + 3), (x, max(drawing.row_bottoms[edge.source], start_y + 3))]
    for entry, exit_ in drawing.bends.get((edge.source, edge.target), []):
        points += [entry, exit_]
    width = _MIN_STROKE + (_MAX_STROKE - _MIN_STROKE) * ((edge.size or 0) / largest) ** 0.5 if largest else _MIN_STROKE
    half_head, head_height = width / 2 + 4, width / 2 + 6
    points.append((to_x, to_y - head_height))
    path = [f"M{points[0][0]:.0f} {points[0][1]:.0f}"]
    for (from_x, from_y), (next_x, next_y) in pairwise(points):
        if from_x == next_x:
            path.append(f"V{next_y:.0f}")
            continue
        half_y = (next_y - from_y) / 2
        control_points = f"{from_x:.0f} {from_y + half_y:.0f} {next_x:.0f} {next_y - half_y:.0f}"
        path.append(f"C{control_points} {next_x:.0f} {next_y:.0f}")
    head = f"M{to_x:.0f} {to_y - 1:.0f}l-{half_head:.0f}-{head_height:.0f}h{2 * round(half_head)}z"
    return (
        f'<path class="{edge.css_class}" stroke-width="{width:.1f}" d="{"".join(path)}"/>'
        f'<path class="{edge.css_class} head" d="{head}"/>'
    )


def _labels_below(labels: Sequence[str], position: Point, height: float) -> str:
    x, y = position
    return "".join(
        f'<text class="label" x="{x:.0f}" y="{y + height + 15 + _LABEL_HEIGHT * index:.0f}" text-anchor="middle">'
        f"{escape(label)}</text>"
        for index, label in enumerate(labels)
    )


def _box(box: Box, position: Point) -> str:
    left, top = position[0] - WIDTH / 2, position[1]
    texts = "".join(
        f'<text x="{left + _PADDING:.0f}" y="{top + 38 + _LINE_HEIGHT * index:.0f}">{escape(text)}</text>'
        for index, text in enumerate(box.lines)
    )
    aside = (
        f'<text class="aside" x="{left + WIDTH - _PADDING:.0f}" y="{top + 20:.0f}" text-anchor="end">'
        f"{escape(box.aside)}</text>"
        if box.aside
        else ""
    )
    body = (
        f'<g class="{box.css_class}" data-id="{escape(box.id)}"><title>{escape(box.tooltip)}</title>'
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{WIDTH:.0f}" height="{box.height:.0f}" rx="9"/>'
        f'<text class="title" x="{left + _PADDING:.0f}" y="{top + 20:.0f}">{escape(box.title)}</text>'
        f"{aside}{texts}</g>"
    )
    if not box.href:
        return body
    name = escape(f"{box.title}, {' '.join(box.lines)}")
    return f'<a id="step-{escape(box.id)}" href="{escape(box.href)}" aria-label="{name}">{body}</a>'
