"""Sides and types of joins, and what each type allows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_BEFORE_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class Side(StrEnum):
    """A side of a join."""

    LEFT = "left"
    RIGHT = "right"

    @property
    def other(self) -> Side:
        """The opposite side."""
        return Side.RIGHT if self is Side.LEFT else Side.LEFT

    @property
    def input_number(self) -> int:
        """The `StreamEdge.type_number` of the side's edge: 1 or 2."""
        return 1 if self is Side.LEFT else 2

    @classmethod
    def of_input(cls, number: int) -> Side:
        """Return the side whose edge has the type number `number`."""
        return cls.LEFT if number == 1 else cls.RIGHT


class JoinType(StrEnum):
    """The type of a join, by Spark's name."""

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
    def display_name(self) -> str:
        """The name in messages, such as ``full outer``."""
        return _BEFORE_CAPITAL.sub(" ", self.value.removesuffix("Join")).lower()

    @classmethod
    def parse(cls, text: str) -> JoinType | None:
        """Return the type for the text that Spark prints, or None if the type is not supported.

        Spark prints an existence join with its column: ``ExistenceJoin(exists#12)``.
        """
        name = text.partition("(")[0]
        return cls(name) if name in set(cls) else None

    def can_build(self, side: Side) -> bool:
        """Whether a broadcast hash join may build its hash table from a side."""
        return side in _RULES[self].build

    def can_hash(self, side: Side) -> bool:
        """Whether a shuffled hash join may build its hash table from a side.

        These are the rules of Spark's ``canBuildShuffledHashJoinLeft`` and ``canBuildShuffledHashJoinRight``.
        """
        return side in _RULES[self].hash

    def can_filter(self, side: Side) -> bool:
        """Whether rows of a side that match no row of the other side can be dropped before the join."""
        return side in _RULES[self].filter

    def can_split(self, side: Side) -> bool:
        """Whether the join result of each row of a side is independent of the other rows of that side.

        If it is, rows with equal keys may be split over tasks that all read the other side's rows of these keys. Also,
        a filter on columns of the side may be applied before the join instead of after it.
        """
        return side in _RULES[self].split

    def keeps_keys(self, side: Side) -> bool:
        """Whether the join returns the keys of a side unchanged, without replacing any by null."""
        return side in _RULES[self].keeps_keys


@dataclass(frozen=True, slots=True)
class _Rules:
    """The sides for which a method of `JoinType` returns True: `can_build`, `can_hash`, and so on."""

    build: tuple[Side, ...]
    hash: tuple[Side, ...]
    filter: tuple[Side, ...]
    split: tuple[Side, ...]
    keeps_keys: tuple[Side, ...]


_NONE, _LEFT, _RIGHT, _BOTH = (), (Side.LEFT,), (Side.RIGHT,), (Side.LEFT, Side.RIGHT)
_RULES = {
    JoinType.INNER: _Rules(build=_BOTH, hash=_BOTH, filter=_BOTH, split=_BOTH, keeps_keys=_BOTH),
    JoinType.CROSS: _Rules(build=_BOTH, hash=_BOTH, filter=_BOTH, split=_BOTH, keeps_keys=_BOTH),
    JoinType.LEFT_OUTER: _Rules(build=_RIGHT, hash=_BOTH, filter=_RIGHT, split=_LEFT, keeps_keys=_LEFT),
    JoinType.RIGHT_OUTER: _Rules(build=_LEFT, hash=_BOTH, filter=_LEFT, split=_RIGHT, keeps_keys=_RIGHT),
    JoinType.FULL_OUTER: _Rules(build=_NONE, hash=_BOTH, filter=_NONE, split=_NONE, keeps_keys=_NONE),
    JoinType.LEFT_SEMI: _Rules(build=_RIGHT, hash=_RIGHT, filter=_BOTH, split=_LEFT, keeps_keys=_LEFT),
    JoinType.LEFT_ANTI: _Rules(build=_RIGHT, hash=_RIGHT, filter=_RIGHT, split=_LEFT, keeps_keys=_LEFT),
    JoinType.EXISTENCE: _Rules(build=_RIGHT, hash=_RIGHT, filter=_RIGHT, split=_LEFT, keeps_keys=_LEFT),
    # This join raises an error if a row has two matches, so no row may be filtered before it.
    JoinType.LEFT_SINGLE: _Rules(build=_RIGHT, hash=_RIGHT, filter=_NONE, split=_NONE, keeps_keys=_LEFT),
}
