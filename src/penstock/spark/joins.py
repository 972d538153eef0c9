"""Properties of an equi-join as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.graph import JoinType, Side
from penstock.spark import answers
from penstock.spark.expressions import Expression

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class JoinKey:
    """A side of an equality condition of a join.

    Parameters
    ----------
    columns, names
        The ids and names of the columns that it uses.
    is_column, is_deterministic
        Whether it is a plain column; whether it always has the same value for the same columns.
    cannot_fail
        Whether its evaluation cannot raise an error.
    """

    expression: Expression = field(repr=False)
    key: str
    columns: tuple[str, ...]
    is_column: bool
    is_deterministic: bool
    cannot_fail: bool
    type: str
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, expression: Expression, facts: Mapping[str, Any]) -> JoinKey:
        """Convert the facts of ``java/JoinReader.java``."""
        return cls(expression, **{**facts, "columns": tuple(facts["columns"]), "names": tuple(facts["names"])})


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """Properties of an equi-join.

    Parameters
    ----------
    left, right
        The keys of both sides, pairwise.
    left_hint, right_hint
        The join hint of each side, such as ``broadcast``, or None.
    is_hashable
        Whether Spark can hash the keys: equal values have equal bytes, and are sortable.
    cannot_fail
        Whether neither the keys nor the remaining join condition can raise an error.
    """

    type: JoinType
    left: tuple[JoinKey, ...]
    right: tuple[JoinKey, ...]
    left_hint: str | None
    right_hint: str | None
    is_hashable: bool
    cannot_fail: bool

    @classmethod
    def of(cls, facts: Mapping[str, Any], expressions: Sequence[Expression]) -> JoinFacts | None:
        """Convert the facts of ``java/JoinReader.java``, left keys first; return None for an unknown join type."""
        join_type = JoinType.parse(facts["join_type"])
        if join_type is None:
            return None
        keys = tuple(JoinKey.of(expression, key) for expression, key in zip(expressions, facts["keys"], strict=True))
        pairs = len(keys) // 2
        return cls(
            join_type,
            keys[:pairs],
            keys[pairs:],
            facts["left_hint"],
            facts["right_hint"],
            is_hashable=facts["is_hashable"],
            cannot_fail=facts["cannot_fail"],
        )

    def keys(self, side: Side) -> tuple[JoinKey, ...]:
        """Return the keys of a side."""
        return self.left if side is Side.LEFT else self.right

    def names(self, side: Side) -> tuple[str, ...]:
        """Return the names of the columns that the keys of a side use."""
        return tuple(dict.fromkeys(name for key in self.keys(side) for name in key.names))

    def expressions(self, side: Side) -> tuple[Expression, ...]:
        """Return the keys of a side as expressions."""
        return tuple(key.expression for key in self.keys(side))


def join_facts(join: LogicalPlan) -> JoinFacts | None:
    """Return the properties of an equi-join; None if Spark extracts no equality of keys, or its type is unknown.

    Uses ``ExtractEquiJoinKeys``, ``UnsafeRowUtils.isBinaryStable``, ``OrderUtils.isOrderable`` (Spark 4.0 to 4.3).
    """
    answer = join._bridge.helper("JoinReader").read(join._handle)
    if answer is None:
        return None
    facts = answers.facts(answer)
    keys = enumerate(facts["keys"])
    return JoinFacts.of(facts, [Expression(join._bridge, answer.handle(index), key["key"]) for index, key in keys])


def join_type_of(join: LogicalPlan) -> JoinType | None:
    """Return the type of a join, None if it is unknown."""
    return JoinType.parse(str(join._handle.joinType().toString()))
