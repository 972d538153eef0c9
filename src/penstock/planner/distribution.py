"""Where rows lie after an operator: by which keys they are hashed, and whether that is enough for the next one.

Keys are texts that are equal where the expressions are; see `Expression.key`. All of this is
about where to cut: where it says "not known", rows are exchanged once more, and where it says too much, Spark puts the
exchange into the vertex. How rows really lie is Spark's word alone, see `penstock.spark.layouts.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.graph import Side

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.graph import JoinType

Keys = tuple[str, ...]
_MOST_EQUATED = 3
"""Of more keys, Spark does not tell all ways to name them by either side: eight ways at most
(``spark.sql.execution.broadcastHashJoin.outputPartitioningExpandLimit``)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How an operator's rows lie.

    Parameters
    ----------
    hashed_by
        Tuples of keys; the rows are hashed by each of them (the two sides of an inner join have equal keys).
    group
        The exchange group that hashed them, or None.
    """

    hashed_by: tuple[Keys, ...] = ()
    group: int | None = None

    def together(self, keys: Sequence[str]) -> bool:
        """Whether rows with equal keys lie in one task already."""
        return any(set(known) <= set(keys) for known in self.hashed_by)

    def order_like(self, keys: Sequence[str]) -> list[int] | None:
        """Return the order of `keys` in which rows are hashed by exactly these, None if they are not."""
        for known in self.hashed_by:
            if len(known) == len(keys) and set(known) == set(keys) and len(set(keys)) == len(keys):
                return [list(keys).index(key) for key in known]
        return None

    def equated(self, equal: Mapping[str, str]) -> Distribution:
        """Return the distribution after an inner join whose keys are equal to these of the other side."""
        if any(len(known) > _MOST_EQUATED for known in self.hashed_by):
            return self
        more = [tuple(equal.get(key, key) for key in known) for known in self.hashed_by]
        new = tuple(known for known in more if known not in self.hashed_by)
        return Distribution((*self.hashed_by, *new), self.group) if new else self

    def after(self, renamed: Mapping[str, str], output: Sequence[str]) -> Distribution:
        """Return the distribution after a projection.

        Parameters
        ----------
        renamed
            The new key by the key of what it stands for.
        output
            The keys that are still there.
        """
        there = set(output)
        kept = []
        for known in self.hashed_by:
            new = tuple(key if key in there else renamed.get(key, "") for key in known)
            if all(new):
                kept.append(new)
        return Distribution(tuple(kept), self.group) if kept else NOT_KNOWN


NOT_KNOWN = Distribution()


def static_build_side(
    join_type: JoinType, size: Mapping[Side, int], hint: Mapping[Side, str | None], threshold: int
) -> Side | None:
    """Return the side that Spark would broadcast when planning, or None.

    A broadcast hint wins (of two, on the smaller side); a hint for another kind of join forbids; else a side of at
    most `threshold` bytes, the smaller one.
    """
    allowed = [side for side in Side if join_type.can_build(side)]
    order = sorted(allowed, key=lambda side: (size[side], side is Side.LEFT))
    hinted = [side for side in order if hint[side] == "broadcast"]
    if hinted:
        return hinted[0]
    if any(hint[side] in {"merge", "shuffle_hash", "shuffle_replicate_nl"} for side in Side):
        return None
    fitting = [side for side in order if 0 <= size[side] <= threshold and hint[side] != "no_broadcast_hash"]
    return fitting[0] if fitting else None
