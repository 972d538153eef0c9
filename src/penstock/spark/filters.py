"""Join keys of a finished result as a filter: exact values, or bounds and a Bloom filter.

Uses (Spark 4.0 to 4.3): ``CollectSet``, ``Min``, ``Max``, ``BloomFilterAggregate``, ``BloomFilterMightContain``,
``XxHash64``, ``InSet``. Values stay in the JVM: on the way through Python a long would become an integer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.spark.exchange import physical_plan
from penstock.spark.expressions import Expression
from penstock.spark.handles import JvmObject
from penstock.spark.jvm import EXPRESSIONS, LOGICAL
from penstock.spark.key_rows import MOST_ROWS, KeyRows
from penstock.spark.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.expressions import Attributes
    from penstock.spark.handles import HashedRelation, Session
    from penstock.spark.jvm import Bridge

_BITS_PER_ROW = 10
_PLANNED_PER_ROW = 2.3
"""Items the filter is planned for, per row: that makes it use three hash functions, and lets 1.7 % through in error.

Seven functions, the best for its size, would let 0.8 % through, and cost twice the memory accesses per row.
"""
_MOST_BITS = 1 << 26
BLOOM_SETTINGS = {
    "spark.sql.optimizer.runtime.bloomFilter.maxNumItems": str(_MOST_BITS),
    "spark.sql.optimizer.runtime.bloomFilter.maxNumBits": str(_MOST_BITS),
}
"""The bounds that Spark puts to the size of a Bloom filter, for sessions that make one."""


class KeyLiteral(JvmObject):
    """A value as a ``Literal``."""


class KeyValues(JvmObject):
    """The values of a key (a Scala ``Set``)."""

    @property
    def text(self) -> str:
        """All of them, with spaces between."""
        return str(self._handle.mkString(" "))


@dataclass(frozen=True, slots=True, eq=False)
class KeySet:
    """The keys of a result.

    Parameters
    ----------
    rows
        How many rows gave them.
    exact
        The values of each key; empty where there are too many.
    bounds
        Per key the smallest and the largest value, or None.
    bloom
        A Bloom filter of the keys' hashes.
    is_empty
        Whether there is no key at all.
    as_rows
        The keys as rows; None where there are too many.
    """

    rows: int
    exact: tuple[KeyValues, ...] = field(default=(), repr=False)
    bounds: tuple[tuple[KeyLiteral, KeyLiteral] | None, ...] = ()
    bloom: KeyLiteral | None = field(default=None, repr=False)
    is_empty: bool = False
    as_rows: KeyRows | None = field(default=None, repr=False)

    def of_key(self, place: int) -> KeySet:
        """Return the values or bounds of one of several keys."""
        return replace(self, exact=self.exact[place : place + 1], bounds=self.bounds[place : place + 1])


def collect_keys(session: Session, leaf: LogicalPlan, keys: Sequence[Expression], rows: int, exact_rows: int) -> KeySet:
    """Run a query for the keys of a plan.

    Parameters
    ----------
    leaf
        A plan.
    keys
        Expressions over its output.
    rows
        How many rows it has, about.
    exact_rows
        Up to so many rows, exact values are kept.
    """
    if rows == 0:
        return KeySet(0, is_empty=True)
    bridge = session._bridge
    functions = _functions(bridge, keys, rows, exact_rows)
    named = [_alias(bridge, function.toAggregateExpression(), f"k{i}") for i, function in enumerate(functions)]
    plan = bridge.find(LOGICAL + "Aggregate")(bridge.seq([]), bridge.seq(named), leaf, bridge.none)
    row = physical_plan(session, LogicalPlan(bridge, plan))._handle.executeCollect()[0]
    found = _key_set(bridge, row, functions, rows, exact_rows)
    return replace(found, as_rows=_rows_of_plan(leaf, keys, rows)) if rows <= MOST_ROWS else found


def _rows_of_plan(leaf: LogicalPlan, keys: Sequence[Expression], rows: int) -> KeyRows:
    def write(session: Session, path: str) -> None:
        bridge = session._bridge
        named = bridge.seq(_alias(bridge, key, f"k{place}") for place, key in enumerate(keys))
        plan = physical_plan(session, LogicalPlan(bridge, bridge.find(LOGICAL + "Project")(named, leaf)))
        bridge.helper("NativeKeys").writePlan(plan, path)

    return KeyRows(rows, write)


def keys_of_relation(
    relation: HashedRelation, output: Attributes, keys: Sequence[Expression], rows: int, exact_rows: int
) -> KeySet | None:
    """Return the keys of a broadcast relation without a query; None if it is of another kind.

    A row with a key that is null is in no relation, and meets none.

    Parameters
    ----------
    relation
        What every executor can fetch.
    output
        The columns of its rows.
    keys, rows, exact_rows
        See `collect_keys`.
    """
    if rows == 0:
        return KeySet(0, is_empty=True)
    bridge = relation._bridge
    functions = _functions(bridge, keys, rows, exact_rows)
    row = _of_relation(relation, output, functions)
    if row is None:
        return None
    found = _key_set(bridge, row, functions, rows, exact_rows)
    return replace(found, as_rows=_rows_of_relation(relation, output, keys, rows)) if rows <= MOST_ROWS else found


def _rows_of_relation(relation: HashedRelation, output: Attributes, keys: Sequence[Expression], rows: int) -> KeyRows:
    def write(session: Session, path: str) -> None:
        bridge = session._bridge
        bridge.helper("NativeKeys").writeRelation(relation, bridge.seq(keys), output, path)

    return KeyRows(rows, write, relation.broadcast)


def is_met_in_relation(relation: HashedRelation, output: Attributes, condition: Expression) -> bool:
    """Whether a row of a broadcast relation meets a condition."""
    largest = relation._bridge.find(EXPRESSIONS + "aggregate.Max")(condition)
    row = _of_relation(relation, output, [largest])
    return row is not None and not row.isNullAt(0) and bool(row.getBoolean(0))


def _of_relation(relation: HashedRelation, output: Attributes, functions: Sequence[Any]) -> Any:
    bridge = relation._bridge
    columns = bridge.find(EXPRESSIONS + "package$AttributeSeq")(output)
    bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(bridge.seq(functions), columns)
    return bridge.helper("RelationAggregation").aggregate(relation, bound)


def _functions(bridge: Bridge, keys: Sequence[Expression], rows: int, exact_rows: int) -> list[Any]:
    aggregates = EXPRESSIONS + "aggregate."
    longs = [
        bridge.companion(EXPRESSIONS + "Literal").fromSQL(f"{size}L")
        for size in (math.ceil(rows * _PLANNED_PER_ROW), min(max(rows * _BITS_PER_ROW, 1 << 13), _MOST_BITS))
    ]
    bloom = bridge.find(aggregates + "BloomFilterAggregate")(_hash(bridge, keys), *longs)
    if rows <= exact_rows:
        return [bloom, *(bridge.find(aggregates + "CollectSet")(key) for key in keys)]
    return [bloom, *(bridge.find(aggregates + name)(key) for key in keys for name in ("Min", "Max"))]


def _key_set(bridge: Bridge, row: Any, functions: Sequence[Any], rows: int, exact_rows: int) -> KeySet:
    values = _Values(bridge, row, [function.dataType() for function in functions])
    bloom = values.literal(0)
    if bloom is None:
        return KeySet(rows, is_empty=True)
    if rows <= exact_rows:
        exact = tuple(values.set_of(i) for i in range(1, len(functions)))
        # A key that is never anything but null meets no other.
        return KeySet(rows, exact, (), bloom, is_empty=any(one._handle.isEmpty() for one in exact))
    ends = [values.literal(i) for i in range(1, len(functions))]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    bounds = tuple(None if low is None or high is None else (low, high) for low, high in pairs)
    return KeySet(rows, (), bounds, bloom)


def might_contain(found: KeySet, keys: Sequence[Expression]) -> Expression:
    """Return a condition that is true of keys that are among those found, and of few others; sources ignore it."""
    bridge = keys[0]._bridge
    asked = bridge.find(EXPRESSIONS + "BloomFilterMightContain")(found.bloom, _hash(bridge, keys))
    condition = Expression(bridge, asked)
    if found.as_rows is None or found.bloom is None:
        return condition
    return found.as_rows.mark(bridge, condition, found.bloom)


def for_sources(found: KeySet, keys: Sequence[Expression]) -> list[Expression]:
    """Return conditions, true of keys that are among those found, that sources can leave out data by."""

    def condition(name: str, key: Expression, value: JvmObject) -> Expression:
        return Expression(key._bridge, key._bridge.find(EXPRESSIONS + name)(key, value))

    parts = [condition("InSet", key, exact) for key, exact in zip(keys, found.exact, strict=False)]
    for key, bounds in zip(keys, found.bounds, strict=False):
        if bounds is not None:
            parts.append(condition("GreaterThanOrEqual", key, bounds[0]))
            parts.append(condition("LessThanOrEqual", key, bounds[1]))
    return parts


class _Values:
    """The values of one row, taken out of it within the JVM."""

    def __init__(self, bridge: Bridge, row: Any, types: Sequence[Any]) -> None:
        self._bridge = bridge
        self._row = row
        self._types = types
        any_class = bridge.find("scala.reflect.ClassTag").Any()
        self._array = row.toSeq(bridge.seq(types)).toArray(any_class)

    def literal(self, place: int) -> KeyLiteral | None:
        """Return a value as a literal, None for null."""
        if self._row.isNullAt(place):
            return None
        bridge = self._bridge
        arguments = bridge.new_array("java.lang.Object", [None, self._types[place]])
        bridge.find("java.lang.System").arraycopy(self._array, place, arguments, 0, 1)
        literal = bridge.find("java.lang.Class").forName(EXPRESSIONS + "Literal")
        return KeyLiteral(bridge, literal.getConstructors()[0].newInstance(arguments))

    def set_of(self, place: int) -> KeyValues:
        """Return the elements of an array."""
        array = self._row.getArray(place)
        return KeyValues(self._bridge, array.toSeq(self._types[place].elementType()).toSet())


def _hash(bridge: Bridge, keys: Sequence[Expression]) -> Any:
    return bridge.find(EXPRESSIONS + "XxHash64")(bridge.seq(keys))


def _alias(bridge: Bridge, expression: Any, name: str) -> Any:
    fresh = bridge.companion(EXPRESSIONS + "NamedExpression").newExprId()
    empty = bridge.seq([])
    return bridge.find(EXPRESSIONS + "Alias")(expression, name, fresh, empty, bridge.none, empty)
