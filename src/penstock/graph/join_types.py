"""Sides and types of joins, and what each type allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class Side(StrEnum):
    """One of the two inputs of a join."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT

    @property
    def input_number(self) -> int:
        """The type number of the side's edge: 1 or 2."""
        return 1 if self is Side.LEFT else 2

    @classmethod
    def of_input(cls, number: int) -> Side:
        """Return the side whose edge has a type number."""
        return cls.LEFT if number == 1 else cls.RIGHT


class JoinType(StrEnum):
    """The type of a join, under Spark's name."""

    INNER = "Inner"
    CROSS = "Cross"
    LEFT_OUTER = "LeftOuter"
    RIGHT_OUTER = "RightOuter"
    FULL_OUTER = "FullOuter"
    LEFT_SEMI = "LeftSemi"
    LEFT_ANTI = "LeftAnti"
    LEFT_SINGLE = "LeftSingle"
    EXISTENCE = "ExistenceJoin"

    @property
    def words(self) -> str:
        """What people call it, such as ``full outer``."""
        return _CAPITAL.sub(" ", self.value.removesuffix("Join")).lower()

    @classmethod
    def parse(cls, text: str) -> JoinType | None:
        """Return the type that Spark prints as a text, or None if it is not known.

        Spark prints an existence join with its column: ``ExistenceJoin(exists#12)``.
        """
        name = text.partition("(")[0]
        return cls(name) if name in set(cls) else None

    def can_build(self, side: Side) -> bool:
        """Whether every task may hold all rows of a side and look up each row of the other side in them."""
        return side in _RULES[self].build

    def can_hash(self, side: Side) -> bool:
        """Whether a task that has all rows of its keys, of both sides, may make its hash table of a side.

        As in Spark's ``canBuildShuffledHashJoinLeft`` and ``-Right``: of an outer join, either.
        """
        return side in _RULES[self].hash

    def can_filter(self, side: Side) -> bool:
        """Whether rows of a side that have no partner can be dropped before the join."""
        return side in _RULES[self].filter

    def can_split(self, side: Side) -> bool:
        """Whether each row of a side gives its results whatever other rows that side has.

        Then equal keys of the side may be spread over tasks that all have the other side's rows of these keys, and
        a filter on the side's columns may move from above the join to below it.
        """
        return side in _RULES[self].split

    def keeps_keys(self, side: Side) -> bool:
        """Whether the join's result holds the keys of a side as they were, none replaced by null."""
        return side in _RULES[self].keeps


@dataclass(frozen=True, slots=True)
class _Rules:
    """The sides for which a rule holds, by rule."""

    build: tuple[Side, ...]
    hash: tuple[Side, ...]
    filter: tuple[Side, ...]
    split: tuple[Side, ...]
    keeps: tuple[Side, ...]


_NONE, _LEFT, _RIGHT, _BOTH = (), (Side.LEFT,), (Side.RIGHT,), (Side.LEFT, Side.RIGHT)
_RULES = {
    JoinType.INNER: _Rules(build=_BOTH, hash=_BOTH, filter=_BOTH, split=_BOTH, keeps=_BOTH),
    JoinType.CROSS: _Rules(build=_BOTH, hash=_BOTH, filter=_BOTH, split=_BOTH, keeps=_BOTH),
    JoinType.LEFT_OUTER: _Rules(build=_RIGHT, hash=_BOTH, filter=_RIGHT, split=_LEFT, keeps=_LEFT),
    JoinType.RIGHT_OUTER: _Rules(build=_LEFT, hash=_BOTH, filter=_LEFT, split=_RIGHT, keeps=_RIGHT),
    JoinType.FULL_OUTER: _Rules(build=_NONE, hash=_BOTH, filter=_NONE, split=_NONE, keeps=_NONE),
    JoinType.LEFT_SEMI: _Rules(build=_RIGHT, hash=_RIGHT, filter=_BOTH, split=_LEFT, keeps=_LEFT),
    JoinType.LEFT_ANTI: _Rules(build=_RIGHT, hash=_RIGHT, filter=_RIGHT, split=_LEFT, keeps=_LEFT),
    JoinType.EXISTENCE: _Rules(build=_RIGHT, hash=_RIGHT, filter=_RIGHT, split=_LEFT, keeps=_LEFT),
    # It fails where a row has two partners. So nothing is left out before it, neither rows nor partners.
    JoinType.LEFT_SINGLE: _Rules(build=_RIGHT, hash=_RIGHT, filter=_NONE, split=_NONE, keeps=_LEFT),
}
