"""Join keys of a finished result as a filter: exact values, or bounds and a Bloom filter.

Uses (Spark 4.0 to 4.3): ``CollectSet``, ``Min``, ``Max``, ``BloomFilterAggregate``, ``BloomFilterMightContain``,
``XxHash64``, ``InSet``. Values stay in the JVM: on the way through Python a long would become an integer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.exchange import physical_plan
from penstock.spark.jvm import LOGICAL, class_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.jvm import Bridge

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_BITS_PER_ROW = 8
_MOST_BITS = 1 << 26
_ORDERED = frozenset({"TinyIntType", "ShortType", "IntegerType", "LongType", "DateType", "TimestampType", "DecimalType"})
BLOOM_SETTINGS = {
    "spark.sql.optimizer.runtime.bloomFilter.maxNumItems": str(_MOST_BITS),
    "spark.sql.optimizer.runtime.bloomFilter.maxNumBits": str(_MOST_BITS),
}
"""The bounds that Spark puts to the size of a Bloom filter, for sessions that make one."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of a result.

    Parameters
    ----------
    rows
        How many rows gave them.
    exact
        Per key a Scala ``Set`` of values; empty where there are too many.
    bounds
        Per key the smallest and the largest value as literals, or None.
    bloom
        A literal, or None.
    is_empty
        Whether there is no key at all.
    """

    rows: int
    exact: tuple[Any, ...] = field(default=(), repr=False)
    bounds: tuple[tuple[Any, Any] | None, ...] = ()
    bloom: Any = field(default=None, repr=False)
    is_empty: bool = False

    @property
    def kind(self) -> str:
        """What it is made of, in words."""
        if self.is_empty:
            return "no key"
        if self.exact:
            return "exact keys" if self.bloom is None else "exact keys and a Bloom filter"
        return "bounds and a Bloom filter" if any(self.bounds) else "a Bloom filter"


def collect_keys(bridge: Bridge, session: Any, leaf: Any, keys: Sequence[Any], rows: int, exact_rows: int) -> KeySet:
    """Run a query for the keys of a plan.

    Parameters
    ----------
    leaf
        A logical plan.
    keys
        Expressions over its output.
    rows
        How many rows it has, about.
    exact_rows
        Up to so many rows, exact values are kept.
    """
    if rows == 0:
        return KeySet(0, is_empty=True)
    aggregates = "org.apache.spark.sql.catalyst.expressions.aggregate."
    is_exact = rows <= exact_rows
    functions, places = [], []
    if is_exact:
        functions = [bridge.find(aggregates + "CollectSet")(key) for key in keys]
    else:
        for key in keys:
            if class_name(key.dataType()).rstrip("$") in _ORDERED:
                places.append(len(functions))
                functions += [bridge.find(aggregates + name)(key) for name in ("Min", "Max")]
            else:
                places.append(-1)
    if not is_exact or len(keys) > 1:
        sizes = (rows, min(max(rows * _BITS_PER_ROW, 1 << 13), _MOST_BITS))
        longs = [bridge.companion(_EXPRESSIONS + "Literal").fromSQL(f"{size}L") for size in sizes]
        functions.append(bridge.find(aggregates + "BloomFilterAggregate")(_hash(bridge, keys), *longs))
    named = [_alias(bridge, function.toAggregateExpression(), f"k{i}") for i, function in enumerate(functions)]
    plan = bridge.find(LOGICAL + "Aggregate")(bridge.seq([]), bridge.seq(named), leaf, bridge.none)
    row = physical_plan(bridge, session, plan).executeCollect()[0]
    types = [function.dataType() for function in functions]
    values = _Values(bridge, row, types)
    bloom = values.literal(len(functions) - 1) if not is_exact or len(keys) > 1 else None
    if is_exact:
        exact = tuple(values.set_of(i) for i in range(len(keys)))
        return KeySet(rows, exact, (), bloom, is_empty=any(one.isEmpty() for one in exact))
    if bloom is None:
        return KeySet(rows, is_empty=True)
    bounds = tuple(
        None if place < 0 or row.isNullAt(place) else (values.literal(place), values.literal(place + 1))
        for place in places
    )
    return KeySet(rows, (), bounds, bloom)


def filtered(bridge: Bridge, plan: Any, found: KeySet, keys: Sequence[Any]) -> Any:
    """Return a plan less the rows whose keys are certainly not among those found (``Filter``)."""
    condition = None
    for part in conditions(bridge, found, keys):
        condition = part if condition is None else bridge.find(_EXPRESSIONS + "And")(condition, part)
    return plan if condition is None else bridge.find(LOGICAL + "Filter")(condition, plan)


def conditions(bridge: Bridge, found: KeySet, keys: Sequence[Any]) -> list[Any]:
    """Return what must be true of keys that are among those found; those that sources understand first."""
    parts = [bridge.find(_EXPRESSIONS + "InSet")(key, exact) for key, exact in zip(keys, found.exact, strict=False)]
    for key, bounds in zip(keys, found.bounds, strict=False):
        if bounds is not None:
            parts.append(bridge.find(_EXPRESSIONS + "GreaterThanOrEqual")(key, bounds[0]))
            parts.append(bridge.find(_EXPRESSIONS + "LessThanOrEqual")(key, bounds[1]))
    if found.bloom is not None:
        parts.append(bridge.find(_EXPRESSIONS + "BloomFilterMightContain")(found.bloom, _hash(bridge, keys)))
    return parts


class _Values:
    """The values of one row, taken out of it within the JVM."""

    def __init__(self, bridge: Bridge, row: Any, types: Sequence[Any]) -> None:
        self._bridge = bridge
        self._row = row
        self._types = types
        any_class = bridge.find("scala.reflect.ClassTag").Any()
        self._array = row.toSeq(bridge.seq(types)).toArray(any_class)

    def literal(self, place: int) -> Any:
        """Return a value as a literal, None for null."""
        if self._row.isNullAt(place):
            return None
        bridge = self._bridge
        gateway = bridge.spark.sparkContext._gateway
        arguments = gateway.new_array(bridge.jvm.Object, 2)  # type: ignore[union-attr]
        bridge.find("java.lang.System").arraycopy(self._array, place, arguments, 0, 1)
        arguments[1] = self._types[place]
        literal = bridge.find("java.lang.Class").forName(_EXPRESSIONS + "Literal")
        return literal.getConstructors()[0].newInstance(arguments)

    def set_of(self, place: int) -> Any:
        """Return the elements of an array as a Scala ``Set``."""
        array = self._row.getArray(place)
        return array.toSeq(self._types[place].elementType()).toSet()


def _hash(bridge: Bridge, keys: Sequence[Any]) -> Any:
    return bridge.find(_EXPRESSIONS + "XxHash64")(bridge.seq(keys))


def _alias(bridge: Bridge, expression: Any, name: str) -> Any:
    fresh = bridge.companion(_EXPRESSIONS + "NamedExpression").newExprId()
    empty = bridge.seq([])
    return bridge.find(_EXPRESSIONS + "Alias")(expression, name, fresh, empty, bridge.none, empty)
