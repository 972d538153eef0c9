"""A layered layout of an acyclic graph: positions of its boxes and routes of its edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

Point = tuple[float, float]
_Neighbours = dict[Any, list[Any]]

GAP_X, GAP_Y, MARGIN = 28.0, 52.0, 20.0  # pixels
_BEND = 14.0
"""The width, in pixels, that an edge needs where it passes a row."""
_MAX_ROUTED_BOXES = 600
"""The most boxes of a graph whose long edges are routed around boxes; in larger graphs they run behind boxes."""
_MAX_IN_ROW = 5
"""A box without inputs is not moved to a row with this many boxes, unless all rows above its consumers are as full."""
_SWEEPS, _FEW_SWEEPS = 8, 4
"""The number of sweeps over all rows that order the boxes of each row, and the number for a large graph."""
_MOVES = 6
"""The number of passes that move the boxes of all rows towards their neighbours."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a box, in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of boxes and edges in a drawing, in pixels.

    `positions` has the centre of the upper side of each box, and `row_bottoms` the lower end of each box's row. `bends`
    has, for each edge that passes rows, the points at which it enters and leaves each of these rows.
    """

    positions: dict[str, Point]
    row_bottoms: dict[str, float]
    bends: dict[tuple[str, str], list[tuple[Point, Point]]]
    width: float
    height: float


def layout(sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]]) -> Layout:
    """Compute a layered drawing: every box is below its inputs.

    Within rows, boxes are ordered by the mean position of their neighbours, which leaves few crossings (Sugiyama,
    Tagawa, Toda 1981). If the graph has at most `_MAX_ROUTED_BOXES` boxes, a box without inputs is close above its
    consumer, and boxes are moved towards their neighbours as far as the other boxes of the row allow.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(edges)
    row_of: dict[Any, int] = {
        name: row for row, names in enumerate(nx.topological_generations(graph)) for name in names
    }
    chains: dict[tuple[str, str], list[Any]] = {}
    if len(graph) <= _MAX_ROUTED_BOXES:
        _move_sources_down(graph, row_of)
        chains = _insert_bends(graph, row_of)
    rows: list[list[Any]] = [[] for _ in range(max(row_of.values(), default=-1) + 1)]
    for name, row in row_of.items():
        rows[row].append(name)
    above, below = _neighbours(graph)
    _order_rows(rows, above, below)
    widths = {name: sizes[name].width if name in sizes else _BEND for name in row_of}
    x_of = _pack_rows(rows, widths)
    if len(graph) <= _MAX_ROUTED_BOXES + sum(map(len, chains.values())):  # `graph` now has bends, too
        x_of = _move_to_neighbours(rows, widths, x_of, above, below)
    heights = [max((sizes[name].height for name in names if name in sizes), default=0.0) for names in rows]
    tops = [MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + GAP_Y)
    left = min((x_of[name] - widths[name] / 2 for name in row_of), default=0.0) - MARGIN
    right = max((x_of[name] + widths[name] / 2 for name in row_of), default=0.0) + MARGIN
    positions = {name: (x_of[name] - left, tops[row_of[name]]) for name in sizes}
    bends = {
        edge: [
            ((x_of[bend] - left, tops[row_of[bend]]), (x_of[bend] - left, tops[row_of[bend]] + heights[row_of[bend]]))
            for bend in chain
        ]
        for edge, chain in chains.items()
    }
    row_bottoms = {name: tops[row_of[name]] + heights[row_of[name]] for name in sizes}
    return Layout(positions, row_bottoms, bends, right - left, tops[-1] - GAP_Y + MARGIN)


def _move_sources_down(graph: Any, row_of: dict[Any, int]) -> None:
    """Move each box without inputs to the lowest row above its consumers that has fewer than `_MAX_IN_ROW` boxes."""
    sources = [name for name in graph if not graph.pred[name] and graph.succ[name]]
    counts = Counter(row for name, row in row_of.items() if graph.pred[name] or not graph.succ[name])
    for name in sorted(sources, key=lambda name: min(row_of[target] for target in graph.succ[name])):
        lowest_row = min(row_of[target] for target in graph.succ[name]) - 1
        free_rows = [row for row in range(lowest_row, -1, -1) if counts[row] < _MAX_IN_ROW]
        row_of[name] = free_rows[0] if free_rows else min(range(lowest_row + 1), key=counts.__getitem__)
        counts[row_of[name]] += 1


def _insert_bends(graph: Any, row_of: dict[Any, int]) -> dict[tuple[str, str], list[Any]]:
    """Insert a node, the bend, in each row that an edge passes; return the bends of each such edge."""
    chains: dict[tuple[str, str], list[Any]] = {}
    for source, target in list(graph.edges):
        between = [(source, target, row) for row in range(row_of[source] + 1, row_of[target])]
        if between:
            graph.remove_edge(source, target)
            nx.add_path(graph, [source, *between, target])
            row_of |= {bend: bend[2] for bend in between}
            chains[source, target] = list(between)
    return chains


def _neighbours(graph: Any) -> tuple[_Neighbours, _Neighbours]:
    """Return the neighbours above and below each box as dictionaries, which are much faster than the graph."""
    above: _Neighbours = {name: [] for name in graph}
    below: _Neighbours = {name: [] for name in graph}
    for source, target in graph.edges:
        below[source].append(target)
        above[target].append(source)
    return above, below


def _order_rows(rows: list[list[Any]], above: _Neighbours, below: _Neighbours) -> None:
    """Order the boxes of each row by the mean position of their neighbours above, then of those below, in turn."""
    position = {name: float(index) for names in rows for index, name in enumerate(names)}
    for sweep in range(_SWEEPS if len(position) <= _MAX_ROUTED_BOXES else _FEW_SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for names in rows if sweep % 2 == 0 else reversed(rows):
            means = {name: _mean([position[box] for box in neighbours[name]], position[name]) for name in names}
            names.sort(key=means.__getitem__)
            position |= {name: index - (len(names) - 1) / 2 for index, name in enumerate(names)}


def _pack_rows(rows: list[list[Any]], widths: Mapping[Any, float]) -> dict[Any, float]:
    """Return the horizontal centre of each box: rows as narrow as possible, around the same centre."""
    x_of: dict[Any, float] = {}
    for names in rows:
        x_of |= zip(names, spread([0.0] * len(names), [widths[name] for name in names]), strict=True)
    return x_of


def _move_to_neighbours(
    rows: list[list[Any]],
    widths: Mapping[Any, float],
    x_of: dict[Any, float],
    above: _Neighbours,
    below: _Neighbours,
) -> dict[Any, float]:
    """Return the horizontal centre of each box: near its neighbours, in the order of its row, with gaps in between."""
    for move in range(_MOVES):
        for names in rows if move % 2 == 0 else reversed(rows):
            targets = [_mean([x_of[box] for box in (*above[name], *below[name])], x_of[name]) for name in names]
            x_of |= zip(names, spread(targets, [widths[name] for name in names]), strict=True)
    return x_of


def spread(targets: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Return the positions closest to the targets that keep the order and do not overlap (pool adjacent violators).

    The targets are the preferred centres of boxes with these widths; the gap between two boxes is `GAP_X`.
    """
    offsets, offset = [], 0.0  # the centres of the boxes, side by side
    for index, width in enumerate(widths):
        offset += (widths[index - 1] + width) / 2 + GAP_X if index else 0.0
        offsets.append(offset)
    pools: list[tuple[float, int]] = []  # of each pool, the sum of target minus offset, and the number of boxes
    for target, offset in zip(targets, offsets, strict=True):
        total, count = target - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            previous_total, previous_count = pools.pop()
            total, count = total + previous_total, count + previous_count
        pools.append((total, count))
    means = [total / count for total, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default
