"""Expressions and columns of Catalyst, as wrappers for the other packages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import JvmObject
from penstock.spark.bridge.jvm import EXPRESSIONS, Bridge, class_name, items


@dataclass(frozen=True, eq=False)
class Expression(JvmObject):
    """An expression over the columns of a plan. Its properties are read from the JVM once."""

    _precomputed_key: str | None = field(default=None, repr=False)

    @cached_property
    def key(self) -> str:
        """A string that is equal for two expressions if and only if Spark's canonical forms of both are equal.

        A key is valid while the JVM has an expression with this key. A nondeterministic expression has a unique key.
        """
        if self._precomputed_key is not None:
            return self._precomputed_key
        return str(self._bridge.helper("ExpressionKeys").of(self._handle))

    @cached_property
    def text(self) -> str:
        """Spark's string form of the expression."""
        return str(self._handle.toString())

    @cached_property
    def sql(self) -> str:
        """The expression in Spark's SQL."""
        return answers.text(self._bridge.helper("PlanReader").sql(self._handle))

    @cached_property
    def kind(self) -> str:
        """The simple class name, such as ``SortOrder``."""
        return class_name(self._handle)

    @property
    def is_attribute(self) -> bool:
        """Whether the expression is a column, without any computation."""
        return self.kind == "AttributeReference"

    @cached_property
    def name(self) -> str:
        """The name of a column."""
        return str(self._handle.name())

    @cached_property
    def type(self) -> str:
        """The SQL name of the type."""
        return str(self._handle.dataType().simpleString())


class Attributes(JvmObject):
    """The output columns of a plan, in order (``Seq[Attribute]``)."""

    def __len__(self) -> int:
        return int(self._handle.size())

    def columns(self) -> list[Expression]:
        """Return all columns."""
        return [Expression(self._bridge, column) for column in items(self._handle)]

    def take(self, positions: Iterable[int]) -> Attributes:
        """Return the columns at some positions."""
        return Attributes(self._bridge, self._bridge.seq(map(self._handle.apply, positions)))


def alias(bridge: Bridge, expression: Any, name: str, expression_id: Any = None, qualifier: Any = None) -> Any:
    """Return an expression with a name (``Alias``), and with a new id if `expression_id` is None."""
    if expression_id is None:
        expression_id = bridge.find(EXPRESSIONS + "NamedExpression").newExprId()
    empty = bridge.empty_seq
    return bridge.find(EXPRESSIONS + "Alias")(
        expression, name, expression_id, empty if qualifier is None else qualifier, bridge.none, empty
    )
