"""How many tasks a vertex gets and which part of each input every task reads. Pure arithmetic.

The rules are those of Flink's adaptive batch scheduler (`DefaultVertexParallelismAndInputInfosDecider`), restated.
A unit of input is a subpartition (what all upstream tasks wrote for one target), a partition (what one upstream
task wrote), or a cell of both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.graph.stream_graph import UNDECIDED
from penstock.scheduler.packing import Range, SizeRow, pack_within, spread_by_count
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

FALLBACK_MAX_PARALLELISM = 128
Rectangle = tuple[Range, Range]
"""A range of partitions (upstream tasks) and a range of subpartitions; ends are exclusive."""


@dataclass(frozen=True, slots=True)
class InputInfo:
    """What is known of one input of a vertex.

    Parameters
    ----------
    sizes
        Bytes, shape (partitions, subpartitions).
    pointwise
        Whether a task reads from some partitions only.
    broadcast
        Whether every task reads all of it.
    intra_correlated
        Whether a subpartition (of a pointwise input: a partition) must stay in one task.
    inter_correlated
        Whether equal subpartitions of all such inputs must meet in one task.
    """

    sizes: np.ndarray
    pointwise: bool = False
    broadcast: bool = False
    intra_correlated: bool = True
    inter_correlated: bool = True

    def __post_init__(self) -> None:
        if self.sizes.ndim != 2 or 0 in self.sizes.shape:
            raise ValueError(f"sizes must have the shape (partitions, subpartitions), not {self.sizes.shape}")
        if self.broadcast and self.pointwise:
            raise ValueError("an input cannot be broadcast and pointwise")

    @property
    def total(self) -> int:
        """All bytes."""
        return int(self.sizes.sum())


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a decision.

    Parameters
    ----------
    minimum, maximum
        The global bounds.
    volume_per_task
        Bytes.
    """

    minimum: int
    maximum: int
    volume_per_task: int

    def __post_init__(self) -> None:
        if self.minimum < 1 or self.maximum < self.minimum:
            raise ValueError(f"bounds {self.minimum} to {self.maximum} hold no parallelism")
        if self.volume_per_task < 1:
            raise ValueError(f"a volume per task of {self.volume_per_task} bytes")


@dataclass(frozen=True, slots=True)
class VertexDecision:
    """The parallelism of a vertex.

    Parameters
    ----------
    parallelism
        The number of tasks.
    reason
        One sentence.
    reads
        For every input, for every task, the rectangles it reads.
    """

    parallelism: int
    reason: str
    reads: tuple[tuple[tuple[Rectangle, ...], ...], ...] = ()


def global_maximum(max_parallelism: int | None, parallelism_default: int | None, cores: int) -> int:
    """Return the bound of all decisions: the option, else the global parallelism, else 128 or four times the cores."""
    return max_parallelism or parallelism_default or max(FALLBACK_MAX_PARALLELISM, 4 * cores)


def vertex_bounds(bounds: Bounds, minimum: int = UNDECIDED, maximum: int = UNDECIDED) -> Bounds:
    """Return the bounds of one vertex; its own maximum wins over a larger global minimum."""
    low, high = max(bounds.minimum, minimum), bounds.maximum
    if maximum != UNDECIDED:
        low, high = min(low, maximum), min(high, maximum)
    return Bounds(low, max(low, high), bounds.volume_per_task)


def base_parallelism(inputs: Sequence[InputInfo], bounds: Bounds) -> int:
    """Return the bytes of all inputs that are not broadcast over the volume per task, within the bounds."""
    parts = [info.total for info in inputs if not info.broadcast]
    if not parts:
        return bounds.minimum
    return min(max(math.ceil(sum(parts) / bounds.volume_per_task), bounds.minimum), bounds.maximum)


def decide_vertex(inputs: Sequence[InputInfo], bounds: Bounds, parallelism: int = UNDECIDED) -> VertexDecision:
    """Decide the parallelism of a vertex with inputs, and what each task reads.

    Parameters
    ----------
    inputs
        At least one.
    bounds
        The vertex's bounds, see `vertex_bounds`.
    parallelism
        A number that is given already, by the user or because the vertex is chained to a decided one.
    """
    if not inputs:
        raise ValueError("a vertex without inputs is a source")
    base = parallelism if parallelism > 0 else base_parallelism(inputs, bounds)
    pointwise = any(info.pointwise for info in inputs)
    fixed = parallelism > 0 or pointwise
    low, high = (base, base) if fixed else (bounds.minimum, bounds.maximum)
    reads: dict[int, list[tuple[Rectangle, ...]]] = {}
    everything = sum(info.total for info in inputs)

    def share(indices: Sequence[int]) -> int:
        part = sum(inputs[i].total for i in indices)
        return max(1, bounds.volume_per_task * part // everything) if everything else bounds.volume_per_task

    def solve(indices: Sequence[int], low: int, high: int) -> tuple[int, str]:
        tasks, why = _solve([inputs[i] for i in indices], share(indices), low, high)
        reads.update(zip(indices, tasks, strict=True))
        return len(tasks[0]), why

    all_to_all = [i for i, info in enumerate(inputs) if not info.pointwise and not info.broadcast]
    correlated = [i for i in all_to_all if inputs[i].inter_correlated]
    alone = [i for i in all_to_all if not inputs[i].inter_correlated]
    count, why = base, ""
    if correlated:
        count, why = solve(correlated, low, high)
    for i in alone:
        count, why = solve([i], count, count)
    for i, info in enumerate(inputs):
        if info.pointwise:
            count, why = solve([i], count, count)
    for i, info in enumerate(inputs):
        if info.broadcast:
            reads[i] = [_whole(info)] * count
    return VertexDecision(
        count, _reason(inputs, bounds, parallelism, why), tuple(tuple(reads[i]) for i in range(len(inputs)))
    )


def _solve(inputs: list[InputInfo], volume: int, low: int, high: int) -> tuple[list[list[tuple[Rectangle, ...]]], str]:
    """Solve inputs that are packed together; all have as many units."""
    widths = {info.sizes.shape[1] for info in inputs}
    if len(inputs) > 1 and len(widths) > 1:
        raise ValueError(f"correlated inputs have different numbers of subpartitions: {sorted(widths)}")
    sizes = sum(_unit_sizes(info) for info in inputs)
    row = SizeRow(np.asarray(sizes))
    ranges, why = pack_within(row, volume, low, high)
    if not low <= len(ranges) <= high:  # fewer units than the fixed number of tasks: some tasks read nothing
        ranges = spread_by_count(len(row), low)
    return [[_rectangles(info, span) for span in ranges] for info in inputs], why


def _unit_sizes(info: InputInfo) -> np.ndarray:
    if not info.intra_correlated and not info.inter_correlated:
        return np.asarray(info.sizes.ravel())
    return np.asarray(info.sizes.sum(axis=1 if info.pointwise else 0))


def _rectangles(info: InputInfo, span: Range) -> tuple[Rectangle, ...]:
    start, end = span
    partitions, subpartitions = info.sizes.shape
    if start >= end:
        return ()
    if info.intra_correlated or info.inter_correlated:
        return ((span, (0, subpartitions)),) if info.pointwise else (((0, partitions), span),)
    first, last = divmod(start, subpartitions), divmod(end - 1, subpartitions)
    if first[0] == last[0]:
        return (((first[0], first[0] + 1), (first[1], last[1] + 1)),)
    pieces = [((first[0], first[0] + 1), (first[1], subpartitions))]
    if last[0] - first[0] > 1:
        pieces.append(((first[0] + 1, last[0]), (0, subpartitions)))
    pieces.append(((last[0], last[0] + 1), (0, last[1] + 1)))
    return tuple(pieces)


def _whole(info: InputInfo) -> tuple[Rectangle, ...]:
    partitions, subpartitions = info.sizes.shape
    return (((0, partitions), (0, subpartitions)),)


def _reason(inputs: Sequence[InputInfo], bounds: Bounds, given: int, why: str) -> str:
    if given > 0:
        return f"asked for {given}"
    parts = [info.total for info in inputs if not info.broadcast]
    if not parts:
        return f"only broadcast inputs, so the minimum {bounds.minimum}"
    tail = f", {why}" if why else ""
    return f"{show_bytes(sum(parts))}, {show_bytes(bounds.volume_per_task)} per task{tail}"


def subpartition_count(known_bytes: int, volume: int, upper: int) -> int:
    """Return how many subpartitions a vertex should write, from the bytes that are known to lie before its consumer.

    Four per expected task leave room to pack them evenly; none of them is worth less than a 64th of the volume.
    """
    wanted = math.ceil(4 * max(known_bytes, 0) / volume)
    return max(1, min(max(wanted, 4), upper))
