"""What each type of join allows: which side may be the build side, be filtered early, or be split."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

SIDES = ("left", "right")
NUMBER = {"left": 1, "right": 2}
"""The type number of a side's edge."""

_BUILD = {
    "left": ("Inner", "RightOuter", "Cross"),
    "right": ("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "LeftSingle", "ExistenceJoin", "Cross"),
}
_HASHED = {
    "left": ("Inner", "LeftOuter", "RightOuter", "FullOuter", "Cross"),
    "right": (*_BUILD["right"], "RightOuter", "FullOuter"),
}
_FILTERED = {
    "left": ("Inner", "RightOuter", "LeftSemi", "Cross"),
    "right": ("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin", "Cross"),
}
_SPLIT = {
    "left": ("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin", "Cross"),
    "right": ("Inner", "RightOuter", "Cross"),
}
_READ_BY_KEYS = frozenset({"", "merge"})


def other(side: str) -> str:
    """Return the opposite side."""
    return "right" if side == "left" else "left"


def may_build(join_type: str, side: str) -> bool:
    """Whether every task may hold all rows of a side, and each row of the other side be looked up in them."""
    return join_type.startswith(_BUILD[side])


def may_hash(join_type: str, side: str) -> bool:
    """Whether a task that has all rows of its keys, of both sides, may make its hash table of a side.

    As in Spark's ``canBuildShuffledHashJoinLeft`` and ``-Right``: of an outer join, either.
    """
    return join_type.startswith(_HASHED[side])


def may_be_filtered(join_type: str, side: str) -> bool:
    """Whether rows of a side that have no partner change nothing, so that they can be dropped before the join."""
    return join_type.startswith(_FILTERED[side])


def may_be_split(join_type: str, side: str, hints: Collection[str] = ()) -> bool:
    """Whether equal keys of a side may be spread over tasks that all have the other side's rows of these keys.

    Parameters
    ----------
    hints
        The hints of both sides. Spark must read each side by the join's keys, as merging two sorted sides does. Of
        all hints, that one alone is sure to make it do so: a hint that it cannot follow may lead to a broadcast.
    """
    return join_type.startswith(_SPLIT[side]) and set(hints) <= _READ_BY_KEYS
