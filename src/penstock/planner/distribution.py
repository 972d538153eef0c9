"""The hash partitioning of rows after an operator, and whether it satisfies the next operator.

Keys are strings that are equal if the expressions are, see `Expression.key`. The distribution only decides where to
add exchanges. If it lacks an existing partitioning, rows are exchanged once more. If it has a wrong partitioning, Spark
adds the exchange inside the vertex. Spark alone decides the actual layout, see `penstock.spark.run.layouts.layout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.graph import JoinType, Side

Keys = tuple[str, ...]
_MAX_EQUATED_KEYS = 3
"""The maximum number of keys to equate: more exceed Spark's 8 combinations (``outputPartitioningExpandLimit``)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Equivalent key tuples by which rows are hashed (empty: unknown), and the exchange group, see `PlanParts`."""

    hashed_by: tuple[Keys, ...] = ()
    group: int | None = None

    def colocates(self, keys: Sequence[str]) -> bool:
        """Whether rows with equal keys are already in the same task."""
        return any(set(hashed) <= set(keys) for hashed in self.hashed_by)

    def hash_order(self, keys: Sequence[str]) -> list[int] | None:
        """Return the positions of the hashed keys in `keys`; None if rows are not hashed by exactly these keys."""
        for hashed in self.hashed_by:
            if len(hashed) == len(keys) and set(hashed) == set(keys) and len(set(keys)) == len(keys):
                return [list(keys).index(key) for key in hashed]
        return None

    def with_equal_keys(self, equal: Mapping[str, str]) -> Distribution:
        """Return the distribution after an inner join; `equal` maps keys to the equal keys of the other side."""
        if any(len(hashed) > _MAX_EQUATED_KEYS for hashed in self.hashed_by):
            return self
        equated = [tuple(equal.get(key, key) for key in hashed) for hashed in self.hashed_by]
        added = tuple(keys for keys in equated if keys not in self.hashed_by)
        return Distribution((*self.hashed_by, *added), self.group) if added else self

    def after_projection(self, renamed: Mapping[str, str], output: Sequence[str]) -> Distribution:
        """Return the distribution after a projection to the keys `output`; `renamed` has the new keys by old keys."""
        preserved = set(output)
        projected = [
            tuple(key if key in preserved else renamed.get(key, "") for key in hashed) for hashed in self.hashed_by
        ]
        hashed_by = tuple(keys for keys in projected if all(keys))
        return Distribution(hashed_by, self.group) if hashed_by else UNKNOWN_DISTRIBUTION


UNKNOWN_DISTRIBUTION = Distribution()


def static_build_side(
    join_type: JoinType, size: Mapping[Side, int], hint: Mapping[Side, str | None], threshold: int
) -> Side | None:
    """Return the side that Spark would broadcast when planning, or None.

    A broadcast hint takes precedence (the smaller side if both have it). A hint for another algorithm prevents a
    broadcast. Otherwise the smaller allowed side without ``no_broadcast_hash`` is broadcast, up to `threshold` bytes.
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
