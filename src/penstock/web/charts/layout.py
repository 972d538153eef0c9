"""Where the boxes of an acyclic graph stand, and which way its edges go."""

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
"""The room that an edge gets where it passes a row."""
_LARGE = 600
"""Boxes from which on long edges go straight, behind what is in their way."""
_ABREAST = 5
"""Boxes without inputs that stand in one row; more of them stand in the rows above."""
_SWEEPS, _FEW_SWEEPS = 8, 4
"""How often rows are ordered, and how often those of a large graph."""
_MOVES = 6


@dataclass(frozen=True, slots=True)
class Size:
    """The room that a box needs, in pixels."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Layout:
    """A drawing.

    Parameters
    ----------
    places
        The middle of the upper side of each box.
    floors
        Where the row of each box ends.
    bends
        For each edge over several rows, where it passes each row between: where it comes in and where it leaves.
    width, height
        Of the whole.
    """

    places: dict[str, Point]
    floors: dict[str, float]
    bends: dict[tuple[str, str], list[tuple[Point, Point]]]
    width: float
    height: float


def layout(sizes: Mapping[str, Size], edges: Iterable[tuple[str, str]]) -> Layout:
    """Return a layered drawing: every box stands below its inputs, and one without inputs not far above its target.

    Within rows boxes are ordered by the mean place of their neighbours, which leaves few crossings (Sugiyama, Tagawa,
    Toda 1981), and then moved towards them as far as the others leave room.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(edges)
    row_of: dict[Any, int] = {
        name: row for row, names in enumerate(nx.topological_generations(graph)) for name in names
    }
    chains: dict[tuple[str, str], list[Any]] = {}
    if len(graph) <= _LARGE:
        _lower(graph, row_of)
        chains = _with_bends(graph, row_of)
    rows: list[list[Any]] = [[] for _ in range(max(row_of.values(), default=-1) + 1)]
    for name, row in row_of.items():
        rows[row].append(name)
    before, after = _neighbours(graph)
    _order(rows, before, after)
    widths = {name: sizes[name].width if name in sizes else _BEND for name in row_of}
    across = _packed(rows, widths)
    if len(graph) <= _LARGE + sum(map(len, chains.values())):
        across = _moved(rows, widths, across, before, after)
    heights = [max((sizes[name].height for name in names if name in sizes), default=0.0) for names in rows]
    tops = [MARGIN]
    for height in heights:
        tops.append(tops[-1] + height + GAP_Y)
    left = min((across[name] - widths[name] / 2 for name in row_of), default=0.0) - MARGIN
    right = max((across[name] + widths[name] / 2 for name in row_of), default=0.0) + MARGIN
    places = {name: (across[name] - left, tops[row_of[name]]) for name in sizes}
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
    return Layout(places, floors, bends, right - left, tops[-1] - GAP_Y + MARGIN)


def _lower(graph: Any, row_of: dict[Any, int]) -> None:
    """Put what has no inputs near what reads it, a few in one row."""
    first = [name for name in graph if not graph.pred[name] and graph.succ[name]]
    taken = Counter(row for name, row in row_of.items() if graph.pred[name] or not graph.succ[name])
    for name in sorted(first, key=lambda name: min(row_of[target] for target in graph.succ[name])):
        lowest = min(row_of[target] for target in graph.succ[name]) - 1
        free = [row for row in range(lowest, -1, -1) if taken[row] < _ABREAST]
        row_of[name] = free[0] if free else min(range(lowest + 1), key=taken.__getitem__)
        taken[row_of[name]] += 1


def _with_bends(graph: Any, row_of: dict[Any, int]) -> dict[tuple[str, str], list[Any]]:
    """Put a bend on each row that an edge passes; return the bends of each such edge."""
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
    """Return what is above and below each box; many times quicker to ask than the graph."""
    before: _Neighbours = {name: [] for name in graph}
    after: _Neighbours = {name: [] for name in graph}
    for source, target in graph.edges:
        after[source].append(target)
        before[target].append(source)
    return before, after


def _order(rows: list[list[Any]], before: _Neighbours, after: _Neighbours) -> None:
    """Order each row by the mean place of the neighbours, from above and from below in turn."""
    place = {name: float(number) for names in rows for number, name in enumerate(names)}
    for sweep in range(_SWEEPS if len(place) <= _LARGE else _FEW_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for names in rows if sweep % 2 == 0 else reversed(rows):
            means = {name: _mean([place[other] for other in neighbours[name]], place[name]) for name in names}
            names.sort(key=means.__getitem__)
            place |= {name: number - (len(names) - 1) / 2 for number, name in enumerate(names)}


def _packed(rows: list[list[Any]], widths: Mapping[Any, float]) -> dict[Any, float]:
    """Return the middle of everything: each row as narrow as it can be, around the same middle."""
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
    """Return the middle of everything: near its neighbours, in the order of its row, with a gap between two."""
    for move in range(_MOVES):
        for names in rows if move % 2 == 0 else reversed(rows):
            wished = [_mean([across[other] for other in (*before[name], *after[name])], across[name]) for name in names]
            across |= zip(names, spread(wished, [widths[name] for name in names]), strict=True)
    return across


def spread(wished: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Return places as near to the wished ones as an order and widths allow (pool adjacent violators).

    Parameters
    ----------
    wished
        Where each would like its middle.
    widths
        The width of each; `GAP_X` is left between two.
    """
    offsets, at = [], 0.0
    for number, width in enumerate(widths):
        at += (widths[number - 1] + width) / 2 + GAP_X if number else 0.0
        offsets.append(at)
    pools: list[tuple[float, int]] = []  # the sum of what its members wish, and how many they are
    for wish, offset in zip(wished, offsets, strict=True):
        total, count = wish - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, others = pools.pop()
            total, count = total + before, count + others
        pools.append((total, count))
    found = [total / count for total, count in pools for _ in range(count)]
    return [place + offset for place, offset in zip(found, offsets, strict=True)]


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
