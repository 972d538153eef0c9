"""Dynamic filters from the join keys of a finished result: a Bloom filter, and exact values or bounds.

Values remain in the JVM, as py4j would convert a small long to an integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.spark.bridge.handles import HashedRelation, JvmObject, Session
from penstock.spark.bridge.jvm import EXPRESSIONS, LOGICAL, Bridge
from penstock.spark.plans.expressions import Attributes, Expression, alias
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.run.exchange import physical_plan
from penstock.spark.run.key_rows import MAX_ROWS, KeyRows

_BITS_PER_ROW = 10
_ITEMS_PER_ROW = 2.3
"""The expected items per row of a Bloom filter, deliberately too many: Spark then uses only three hash functions.

Three result in 1.7 % false positives. Seven, the optimum for this size, would result in 0.8 %, but need more than twice
the memory accesses per row.
"""
_MAX_BITS = 1 << 26
BLOOM_SETTINGS = {
    "spark.sql.optimizer.runtime.bloomFilter.maxNumItems": str(_MAX_BITS),
    "spark.sql.optimizer.runtime.bloomFilter.maxNumBits": str(_MAX_BITS),
}
"""Spark settings that limit the size of a Bloom filter, for sessions that build Bloom filters."""


class KeyLiteral(JvmObject):
    """A value of a key, or a Bloom filter, as a ``Literal`` of Spark."""


class KeyValues(JvmObject):
    """The values of a key (a Scala ``Set``)."""

    @property
    def text(self) -> str:
        """All values, separated by spaces."""
        return str(self._handle.mkString(" "))


@dataclass(frozen=True, slots=True, eq=False)
class KeySet:
    """The distinct keys of a result."""

    rows: int
    """The approximate number of rows with these keys."""
    values: tuple[KeyValues, ...] = field(default=(), repr=False)
    """The values of each key; empty if there are too many."""
    bounds: tuple[tuple[KeyLiteral, KeyLiteral] | None, ...] = ()
    """The minimum and maximum of each key, None for a key with only nulls; empty if there are `values`."""
    bloom: KeyLiteral | None = field(default=None, repr=False)
    """A Bloom filter of the hash of all keys of a row; None if there are no rows."""
    is_empty: bool = False
    """Whether certainly no row can match: there are no rows, or a key has no `values` because it is always null."""
    as_rows: KeyRows | None = field(default=None, repr=False)
    """The keys as rows; None if there are too many, or no rows."""

    def of_key(self, index: int) -> KeySet:
        """Return the key set with the values or bounds of a single key only."""
        return replace(self, values=self.values[index : index + 1], bounds=self.bounds[index : index + 1])


def collect_keys(session: Session, leaf: LogicalPlan, keys: Sequence[Expression], rows: int, max_exact: int) -> KeySet:
    """Query the keys of a plan with about `rows` rows: their values if `rows` is at most `max_exact`, else bounds."""
    if rows == 0:
        return KeySet(0, is_empty=True)
    bridge = session._bridge
    functions = _key_functions(bridge, keys, rows, max_exact)
    named = [alias(bridge, function.toAggregateExpression(), f"k{i}") for i, function in enumerate(functions)]
    plan = bridge.find(LOGICAL + "Aggregate")(bridge.seq([]), bridge.seq(named), leaf, bridge.none)
    row = physical_plan(session, LogicalPlan(bridge, plan))._handle.executeCollect()[0]

    def write(key_session: Session, path: str) -> None:
        bridge = key_session._bridge
        named = bridge.seq(alias(bridge, key, f"k{index}") for index, key in enumerate(keys))
        plan = physical_plan(key_session, LogicalPlan(bridge, bridge.find(LOGICAL + "Project")(named, leaf)))
        bridge.helper("KeyRows").writePlan(plan, path)

    key_set = _key_set(bridge, row, functions, rows, max_exact)
    return replace(key_set, as_rows=KeyRows(rows, write)) if rows <= MAX_ROWS else key_set


def collect_relation_keys(
    relation: HashedRelation, output: Attributes, keys: Sequence[Expression], rows: int, max_exact: int
) -> KeySet | None:
    """Return the keys of a broadcast relation without a query; None for an unsupported kind of relation.

    A relation has no rows with a null key, as they match nothing.
    """
    if rows == 0:
        return KeySet(0, is_empty=True)
    bridge = relation._bridge
    functions = _key_functions(bridge, keys, rows, max_exact)
    row = _aggregate_relation(relation, output, functions)
    if row is None:
        return None

    def write(session: Session, path: str) -> None:
        bridge = session._bridge
        bridge.helper("KeyRows").writeRelation(relation, bridge.seq(keys), output, path)

    key_set, as_rows = _key_set(bridge, row, functions, rows, max_exact), KeyRows(rows, write, relation.broadcast_id)
    return replace(key_set, as_rows=as_rows) if rows <= MAX_ROWS else key_set


def any_row_matches(relation: HashedRelation, output: Attributes, condition: Expression) -> bool:
    """Whether any row of a broadcast relation satisfies a condition; False for an unsupported kind of relation."""
    any_true = relation._bridge.find(EXPRESSIONS + "aggregate.Max")(condition)  # true is greater than false
    row = _aggregate_relation(relation, output, [any_true])
    return row is not None and not row.isNullAt(0) and bool(row.getBoolean(0))


def _aggregate_relation(relation: HashedRelation, output: Attributes, functions: Sequence[Any]) -> Any:
    bridge = relation._bridge
    columns = bridge.find(EXPRESSIONS + "package$AttributeSeq")(output)
    bound = bridge.companion(EXPRESSIONS + "BindReferences").bindReferences(bridge.seq(functions), columns)
    return bridge.helper("RelationAggregation").aggregate(relation, bound)


def _key_functions(bridge: Bridge, keys: Sequence[Expression], rows: int, max_exact: int) -> list[Any]:
    """Return the aggregate functions of a `KeySet`: a Bloom filter, then the values or the bounds of each key."""
    aggregates = EXPRESSIONS + "aggregate."
    items_and_bits = [
        bridge.companion(EXPRESSIONS + "Literal").fromSQL(f"{size}L")
        for size in (math.ceil(rows * _ITEMS_PER_ROW), min(max(rows * _BITS_PER_ROW, 1 << 13), _MAX_BITS))
    ]
    bloom = bridge.find(aggregates + "BloomFilterAggregate")(_hash(bridge, keys), *items_and_bits)
    if rows <= max_exact:
        return [bloom, *(bridge.find(aggregates + "CollectSet")(key) for key in keys)]
    return [bloom, *(bridge.find(aggregates + name)(key) for key in keys for name in ("Min", "Max"))]


def _key_set(bridge: Bridge, row: Any, functions: Sequence[Any], rows: int, max_exact: int) -> KeySet:
    types = [function.dataType() for function in functions]
    results = row.toSeq(bridge.seq(types)).toArray(bridge.find("scala.reflect.ClassTag").Any())

    def literal(index: int) -> KeyLiteral | None:
        """Return a result as a literal, without a conversion to Python; None for null."""
        if row.isNullAt(index):
            return None
        arguments = bridge.new_array("java.lang.Object", [None, types[index]])
        bridge.find("java.lang.System").arraycopy(results, index, arguments, 0, 1)
        constructor = bridge.find("java.lang.Class").forName(EXPRESSIONS + "Literal").getConstructors()[0]
        return KeyLiteral(bridge, constructor.newInstance(arguments))

    bloom, indexes = literal(0), range(1, len(functions))
    if bloom is None:
        return KeySet(rows, is_empty=True)
    if rows <= max_exact:
        sets = (row.getArray(i).toSeq(types[i].elementType()).toSet() for i in indexes)
        values = tuple(KeyValues(bridge, elements) for elements in sets)
        # A key with only null values matches nothing.
        return KeySet(rows, values, (), bloom, is_empty=any(elements._handle.isEmpty() for elements in values))
    limits = [literal(i) for i in indexes]
    pairs = zip(limits[::2], limits[1::2], strict=True)
    bounds = tuple(None if low is None or high is None else (low, high) for low, high in pairs)
    return KeySet(rows, (), bounds, bloom)


def might_contain(key_set: KeySet, keys: Sequence[Expression]) -> Expression:
    """Return the Bloom filter as a condition that is true for all keys and few other values; sources cannot use it."""
    bridge = keys[0]._bridge
    test = bridge.find(EXPRESSIONS + "BloomFilterMightContain")(key_set.bloom, _hash(bridge, keys))
    condition = Expression(bridge, test)
    if key_set.as_rows is None or key_set.bloom is None:
        return condition
    return key_set.as_rows.tag_filter(bridge, condition, key_set.bloom)


def source_conditions(key_set: KeySet, keys: Sequence[Expression]) -> list[Expression]:
    """Return conditions that are true for all keys of the set, and with which sources can prune data."""

    def condition(name: str, key: Expression, value: JvmObject) -> Expression:
        return Expression(key._bridge, key._bridge.find(EXPRESSIONS + name)(key, value))

    conditions = [condition("InSet", key, values) for key, values in zip(keys, key_set.values, strict=False)]
    for key, bounds in zip(keys, key_set.bounds, strict=False):
        if bounds is not None:
            conditions.append(condition("GreaterThanOrEqual", key, bounds[0]))
            conditions.append(condition("LessThanOrEqual", key, bounds[1]))
    return conditions


def _hash(bridge: Bridge, keys: Sequence[Expression]) -> Any:
    return bridge.find(EXPRESSIONS + "XxHash64")(bridge.seq(keys))
