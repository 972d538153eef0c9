"""Properties of an equi-join as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.graph import JoinType, Side
from penstock.spark.bridge import answers
from penstock.spark.plans.expressions import Expression

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class JoinKey:
    """The left or the right expression of an equality condition of a join."""

    expression: Expression = field(repr=False)
    key: str
    """A string that is equal for equal expressions (`Expression.key` of `expression`)."""
    columns: tuple[str, ...]
    """The ids of the columns that the key uses."""
    is_column: bool
    is_deterministic: bool
    """Whether the key always has the same value for the same columns."""
    cannot_fail: bool
    """Whether the evaluation of the key cannot raise an error."""
    type: str
    names: tuple[str, ...] = ()
    """The SQL type of the key, and the names of `columns`."""


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """Properties of an equi-join."""

    type: JoinType
    left: tuple[JoinKey, ...]
    right: tuple[JoinKey, ...]
    """The keys of both sides, pairwise."""
    left_hint: str | None
    right_hint: str | None
    """The join hint of each side, such as ``broadcast``, or None."""
    is_hashable: bool
    """Whether a shuffled hash join can compare the keys: they are sortable, and equal values have equal bytes."""
    cannot_fail: bool
    """Whether neither the keys nor the remaining join condition can raise an error."""

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
    """Return the properties of an equi-join; None if it has no equality condition or an unknown type."""
    answer = join._bridge.helper("JoinReader").read(join._handle)
    if answer is None:
        return None
    facts = answers.facts(answer)
    join_type, keys = JoinType.parse(facts.pop("join_type")), []
    for index, key in enumerate(facts.pop("keys")):
        expression = Expression(join._bridge, answer.handle(index), key["key"])
        keys.append(JoinKey(expression, **{**key, "columns": tuple(key["columns"]), "names": tuple(key["names"])}))
    count = len(keys) // 2  # the keys of the left side come first
    return None if join_type is None else JoinFacts(join_type, tuple(keys[:count]), tuple(keys[count:]), **facts)


def join_type_of(join: LogicalPlan) -> JoinType | None:
    """Return the type of a join, None if it is unknown."""
    return JoinType.parse(str(join._handle.joinType().toString()))
