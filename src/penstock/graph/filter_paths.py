"""Where keys of one side of a join can filter rows of the other side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.graph.join_types import Side


@dataclass(frozen=True, slots=True)
class JoinInput:
    """One input of a join.

    Parameters
    ----------
    join_id
        The join's node.
    side
        Which of its inputs.
    """

    join_id: int
    side: Side


@dataclass(frozen=True, slots=True)
class FilterPath:
    """One way from a join down to where rows of one of its sides could be filtered.

    Parameters
    ----------
    side
        The side that would be filtered, by the keys of the other.
    targets
        The nodes behind which the filter can stand, the lowest first.
    filter_source
        The join input whose rows give the keys: the other side itself, or where that is chained, what is exchanged
        before it and holds all its keys.
    keys_from
        The scan that the keys come from, or None.
    prunes
        Whether the lowest target is a source that leaves out data by the keys: partitions, or rows of a database.
    exact
        Whether it does so only by exact keys.
    """

    side: Side
    targets: tuple[int, ...]
    filter_source: JoinInput
    keys_from: int | None = None
    prunes: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class DynamicFilterRef:
    """A filter to apply behind a node.

    Parameters
    ----------
    join_id
        The join that has the path.
    path
        The index of the path among the join's.
    """

    join_id: int
    path: int
