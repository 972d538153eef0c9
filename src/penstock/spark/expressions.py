"""Expressions and columns of Catalyst, as the other rooms hold them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.spark import answers
from penstock.spark.handles import JvmObject
from penstock.spark.jvm import class_name

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, eq=False)
class Expression(JvmObject):
    """An expression over the columns of a plan. What is asked of it is asked once."""

    _known_key: str | None = field(default=None, repr=False)

    @cached_property
    def key(self) -> str:
        """A text that is equal for two expressions if and only if they compute the same value of the same columns.

        It is valid as long as one of these expressions is reachable; that of a nondeterministic expression is unique.
        """
        if self._known_key is not None:
            return self._known_key
        return str(self._bridge.helper("ExpressionKeys").of(self._handle))

    @cached_property
    def text(self) -> str:
        """How Spark prints it."""
        return str(self._handle.toString())

    @cached_property
    def sql(self) -> str:
        """The same in Spark's SQL."""
        return answers.text(self._bridge.helper("PlanReader").sql(self._handle))

    @cached_property
    def kind(self) -> str:
        """The simple name of its class, such as ``SortOrder``."""
        return class_name(self._handle)

    @property
    def is_attribute(self) -> bool:
        """Whether it is a plain column."""
        return self.kind == "AttributeReference"

    @cached_property
    def name(self) -> str:
        """The name of a column."""
        return str(self._handle.name())

    @cached_property
    def type(self) -> str:
        """Its type as SQL spells it."""
        return str(self._handle.dataType().simpleString())


class Attributes(JvmObject):
    """The columns of a plan's output, in their order (``Seq[Attribute]``)."""

    def __len__(self) -> int:
        return int(self._handle.size())

    def at(self, place: int) -> Expression:
        """Return the column at a place."""
        return Expression(self._bridge, self._handle.apply(place))

    def columns(self) -> list[Expression]:
        """Return all columns."""
        return list(map(self.at, range(len(self))))

    def take(self, places: Iterable[int]) -> Attributes:
        """Return the columns at some places."""
        return Attributes(self._bridge, self._bridge.seq(map(self._handle.apply, places)))
