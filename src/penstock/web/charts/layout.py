"""A layered layout of an acyclic graph: positions of its boxes and routes of its edges."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Point = tuple[float, float]
_Neighbours = dict[Any, list[Any]]

GAP_X, GAP_Y, MARGIN = 28.0, 52.0, 20.0
_BEND = 14.0
"""The width that an edge takes where it passes a row."""
_MAX_ROUTED = 600
"""The most boxes with which long edges are routed around boxes; in larger graphs they go straight behind them."""
_MAX_IN_ROW = 5
"""The most boxes without inputs in a row; more of them are moved to the rows above."""
_SWEEPS, _FEW_SWEEPS = 8, 4
"""The number of ordering sweeps, and the number for a large graph."""
_MOVES = 6


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a box, in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing: the centre of the upper side of each box, the lower end of its row, and the bends of the edges.

    `bends` are, for each edge over several rows, the points at which it enters and leaves each row in between.
    """

    positions: dict[str, Point]
    floors: dict[str, float]
    bends: dict[tuple[str, str], list[tuple[Point, Point]]]
    width: float
    height: float


def layout(sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]]) -> Layout:
    """Compute a layered drawing: every box is below its inputs, and a box without inputs is close above its consumer.

    Within rows, boxes are ordered by the mean position of their neighbours, which leaves few crossings (Sugiyama,
    Tagawa, Toda 1981), and then moved towards them as far as the other boxes of the row allow.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(edges)
    row_of: dict[Any, int] = {
        name: row for row, names in enumerate(nx.topological_generations(graph)) for name in names
    }
    chains: dict[tuple[str, str], list[Any]] = {}
    if len(graph) <= _MAX_ROUTED:
        _lower(graph, row_of)
        chains = _with_bends(graph, row_of)
    rows: list[list[Any]] = [[] for _ in range(max(row_of.values(), default=-1) + 1)]
    for name, row in row_of.items():
        rows[row].append(name)
    before, after = _neighbours(graph)
    _order(rows, before, after)
    widths = {name: sizes[name].width if name in sizes else _BEND for name in row_of}
    across = _packed(rows, widths)
    if len(graph) <= _MAX_ROUTED + sum(map(len, chains.values())):
        across = _moved(rows, widths, across, before, after)
    heights = [max((sizes[name].height for name in names if name in sizes), default=0.0) for names in rows]
    tops = [MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + GAP_Y)
    left = min((across[name] - widths[name] / 2 for name in row_of), default=0.0) - MARGIN
    right = max((across[name] + widths[name] / 2 for name in row_of), default=0.0) + MARGIN
    positions = {name: (across[name] - left, tops[row_of[name]]) for name in sizes}
    bends = {
        edge: [
            (
                (across[bend] - left, tops[row_of[bend]]),
                (across[bend] - left, tops[row_of[bend]] + heights[row_of[bend]]),
            )
            for bend in chain
        ]
        for edge, chain in chains.items()
    }
    floors = {name: tops[row_of[name]] + heights[row_of[name]] for name in sizes}
    return Layout(positions, floors, bends, right - left, tops[-1] - GAP_Y + MARGIN)


def _lower(graph: Any, row_of: dict[Any, int]) -> None:
    """Move boxes without inputs close to their consumers, a few in each row."""
    sources = [name for name in graph if not graph.pred[name] and graph.succ[name]]
    counts = Counter(row for name, row in row_of.items() if graph.pred[name] or not graph.succ[name])
    for name in sorted(sources, key=lambda name: min(row_of[target] for target in graph.succ[name])):
        lowest = min(row_of[target] for target in graph.succ[name]) - 1
        free = [row for row in range(lowest, -1, -1) if counts[row] < _MAX_IN_ROW]
        row_of[name] = free[0] if free else min(range(lowest + 1), key=counts.__getitem__)
        counts[row_of[name]] += 1


def _with_bends(graph: Any, row_of: dict[Any, int]) -> dict[tuple[str, str], list[Any]]:
    """Insert a bend in each row that an edge passes; return the bends of each such edge."""
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
    before: _Neighbours = {name: [] for name in graph}
    after: _Neighbours = {name: [] for name in graph}
    for source, target in graph.edges:
        after[source].append(target)
        before[target].append(source)
    return before, after


def _order(rows: list[list[Any]], before: _Neighbours, after: _Neighbours) -> None:
    """Order each row by the mean position of its neighbours, from above and from below in turn."""
    position = {name: float(number) for names in rows for number, name in enumerate(names)}
    for sweep in range(_SWEEPS if len(position) <= _MAX_ROUTED else _FEW_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for names in rows if sweep % 2 == 0 else reversed(rows):
            means = {name: _mean([position[other] for other in neighbours[name]], position[name]) for name in names}
            names.sort(key=means.__getitem__)
            position |= {name: number - (len(names) - 1) / 2 for number, name in enumerate(names)}


def _packed(rows: list[list[Any]], widths: Mapping[Any, float]) -> dict[Any, float]:
    """Return the horizontal centre of each box: rows as narrow as possible, around the same centre."""
    across: dict[Any, float] = {}
    for names in rows:
        across |= zip(names, spread([0.0] * len(names), [widths[name] for name in names]), strict=True)
    return across


def _moved(
    rows: list[list[Any]],
    widths: Mapping[Any, float],
    across: dict[Any, float],
    before: _Neighbours,
    after: _Neighbours,
) -> dict[Any, float]:
    """Return the horizontal centre of each box: near its neighbours, in the order of its row, with gaps in between."""
    for move in range(_MOVES):
        for names in rows if move % 2 == 0 else reversed(rows):
            targets = [
                _mean([across[other] for other in (*before[name], *after[name])], across[name]) for name in names
            ]
            across |= zip(names, spread(targets, [widths[name] for name in names]), strict=True)
    return across


def spread(targets: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Return the positions closest to the targets that keep the order and do not overlap (pool adjacent violators).

    The targets are the preferred centres of boxes with these widths; the gap between two boxes is `GAP_X`.
    """
    offsets, at = [], 0.0
    for number, width in enumerate(widths):
        at += (widths[number - 1] + width) / 2 + GAP_X if number else 0.0
        offsets.append(at)
    pools: list[tuple[float, int]] = []  # the sum of the targets of its members, and their number
    for target, offset in zip(targets, offsets, strict=True):
        total, count = target - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, others = pools.pop()
            total, count = total + before, count + others
        pools.append((total, count))
    means = [total / count for total, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _mean(values: list[float], default: float) -> float:
    return sum(values) / len(values) if values else default
