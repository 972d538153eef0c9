"""Where rows lie after an operator: by which keys they are hashed, and whether that is enough for the next one.

Keys are texts that are equal where the expressions are; see `penstock.spark.catalyst.expression_key`. All of this is
about where to cut: where it says "not known", rows are exchanged once more, and where it says too much, Spark puts the
exchange into the vertex. How rows really lie is Spark's word alone, see `penstock.spark.exchange.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.optimizer.joins import SIDES, may_build

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
        The exchange group that hashed them.
    """

    hashed_by: tuple[Keys, ...] = ()
    group: int = -1

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

_KEEPS_LEFT = ("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin", "Cross")
_KEEPS_RIGHT = ("Inner", "RightOuter", "Cross")


def keeps_keys(join_type: str, side: str) -> bool:
    """Whether a join's result holds the keys of a side as they were, none replaced by null."""
    return join_type.startswith(_KEEPS_LEFT if side == "left" else _KEEPS_RIGHT)


def static_build_side(
    join_type: str, left_bytes: int, right_bytes: int, left_hint: str, right_hint: str, threshold: int
) -> str:
    """Return the side that Spark would broadcast when planning, ``left`` or ``right``, or an empty text.

    A broadcast hint wins (of two, on the smaller side); a hint for another kind of join forbids; else a side of at
    most `threshold` bytes, the smaller one.
    """
    allowed = [side for side in SIDES if may_build(join_type, side)]
    size = {"left": left_bytes, "right": right_bytes}
    hint = {"left": left_hint, "right": right_hint}
    order = sorted(allowed, key=lambda side: (size[side], side == "left"))
    hinted = [side for side in order if hint[side] == "broadcast"]
    if hinted:
        return hinted[0]
    if any(hint[side] in {"merge", "shuffle_hash", "shuffle_replicate_nl"} for side in hint):
        return ""
    fitting = [side for side in order if 0 <= size[side] <= threshold and hint[side] != "no_broadcast_hash"]
    return fitting[0] if fitting else ""
