"""What an equi-join is made of, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark import answers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode


@dataclass(frozen=True, slots=True)
class JoinKey:
    """One side of an equality that a join wants.

    Parameters
    ----------
    handle
        The expression in the JVM.
    text
        The same as `expression_key` spells it.
    columns
        The columns it is computed from.
    is_column, is_deterministic
        Whether it is a plain column; whether it has the same value each time.
    cannot_fail
        Whether it has a value, or null, whatever the columns hold.
    type
        Its type as SQL spells it.
    """

    handle: Any = field(repr=False)
    text: str
    columns: tuple[str, ...]
    is_column: bool
    is_deterministic: bool
    cannot_fail: bool
    type: str

    @classmethod
    def of(cls, handle: Any, facts: Mapping[str, Any]) -> JoinKey:
        """Return the key of what ``java/JoinReader.java`` tells about it."""
        return cls(handle, **{**facts, "columns": tuple(facts["columns"])})


@dataclass(frozen=True, slots=True)
class JoinFacts:
    """What an equi-join is made of.

    Parameters
    ----------
    join_type
        Spark's name, such as ``Inner`` or ``LeftOuter``.
    left, right
        The keys, pairwise.
    left_hint, right_hint
        The join strategy hint of each side, such as ``broadcast``, or an empty text.
    is_hashable
        Whether Spark joins such keys by hashing them: equal values are equal in their bytes, and can be sorted too.
    cannot_fail
        Whether neither the keys nor what else it wants of a pair of rows can raise an error.
    """

    join_type: str
    left: tuple[JoinKey, ...]
    right: tuple[JoinKey, ...]
    left_hint: str
    right_hint: str
    is_hashable: bool
    cannot_fail: bool

    @classmethod
    def of(cls, facts: Mapping[str, Any], handles: Sequence[Any]) -> JoinFacts:
        """Return the join of what ``java/JoinReader.java`` tells about it; left keys come first."""
        keys = tuple(JoinKey.of(handle, key) for handle, key in zip(handles, facts["keys"], strict=True))
        pairs = len(keys) // 2
        return cls(
            facts["join_type"],
            keys[:pairs],
            keys[pairs:],
            facts["left_hint"],
            facts["right_hint"],
            is_hashable=facts["is_hashable"],
            cannot_fail=facts["cannot_fail"],
        )

    def keys(self, side: str) -> tuple[JoinKey, ...]:
        """Return the keys of the ``left`` or ``right`` side."""
        return self.left if side == "left" else self.right

    def handles(self, side: str) -> tuple[Any, ...]:
        """Return the keys of a side as expressions in the JVM."""
        return tuple(key.handle for key in self.keys(side))


def join_facts(bridge: Bridge, join: LogicalNode) -> JoinFacts | None:
    """Return the facts of an equi-join; None if Spark finds no equality of keys in it.

    Uses ``ExtractEquiJoinKeys``, ``UnsafeRowUtils.isBinaryStable``, ``OrderUtils.isOrderable`` (Spark 4.0 to 4.3).
    """
    answer = bridge.helper("JoinReader").read(join.handle)
    if answer is None:
        return None
    facts = answers.facts(answer)
    return JoinFacts.of(facts, tuple(map(answer.handle, range(len(facts["keys"])))))
