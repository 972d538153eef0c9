"""Paths along which the keys of a join side can filter rows of the other side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.graph.join_types import Side


@dataclass(frozen=True, slots=True)
class JoinInput:
    """An input of a join: the id of the join and the side."""

    join_id: int
    side: Side


@dataclass(frozen=True, slots=True)
class FilterPath:
    """A path from a join down to the nodes where rows of a side can be filtered.

    Parameters
    ----------
    side
        The side that is filtered, by the keys of the other side.
    targets
        The nodes after which the filter can be applied, the lowest first.
    filter_source
        The join input that the keys are collected from: the other side, or if that is chained, the exchanged input
        below it that contains all its keys.
    keys_from
        The id of the scan that the keys come from, or None.
    prunes
        Whether the lowest target is a source that prunes by the keys: partitions, or rows of a database.
    exact
        Whether the source prunes by exact keys only.
    """

    side: Side
    targets: tuple[int, ...]
    filter_source: JoinInput
    keys_from: int | None = None
    prunes: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class DynamicFilterRef:
    """A filter to apply after a node: `path` is an index into the filters of the join."""

    join_id: int
    path: int
