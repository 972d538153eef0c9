"""Conditions of Spark's plans as plain values, translated as Spark translates them for its own data sources."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import EXECUTION, class_name, items, option

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

PlainCondition = tuple[Any, ...]
"""(operator, column, values) for a comparison, (operator, conditions) for AND and OR."""

_OPERATORS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}


def conditions_of(scan: LogicalPlan) -> list[PlainCondition]:
    """Return the conditions in `scan` (filters and projections over a leaf) that can be translated; skip all others."""
    strategy = scan._bridge.companion(EXECUTION + "datasources.DataSourceStrategy")
    conditions = []
    node = scan._handle
    while node.children().size() == 1:
        if class_name(node) == "Filter":
            for conjunct in _conjuncts(node.condition()):
                translated = option(strategy.translateFilter(conjunct, False))
                plain = None if translated is None else _plain(translated)
                if plain is not None:
                    conditions.append(plain)
        node = node.children().apply(0)
    return conditions


def used_columns(scan: LogicalPlan, leaf: LogicalPlan) -> tuple[str, ...] | None:
    """Return the names of a leaf's columns that the projections and filters above it use; None for all columns."""
    scan_plan, leaf_plan = scan._handle, leaf._handle
    if scan_plan.equals(leaf_plan):
        return None
    used, node = scan_plan.references(), scan_plan
    while not node.equals(leaf_plan) and node.children().size() == 1:
        used = used.__getattr__("$plus$plus")(node.references())
        node = node.children().apply(0)
    used = used.__getattr__("$plus$plus")(scan_plan.outputSet())
    return tuple(str(column.name()) for column in items(leaf_plan.output()) if used.contains(column))


def _conjuncts(condition: Any) -> list[Any]:
    if class_name(condition) == "And":
        return _conjuncts(condition.left()) + _conjuncts(condition.right())
    return [condition]


def _plain(condition: Any) -> PlainCondition | None:
    name = class_name(condition)
    if name in _OPERATORS:
        value = _value(condition.value())
        return None if value is None else (_OPERATORS[name], str(condition.attribute()), (value,))
    match name:
        case "In":
            values = [_value(value) for value in condition.values()]
            return None if None in values else ("in", str(condition.attribute()), tuple(values))
        case "IsNull" | "IsNotNull":
            return "is null" if name == "IsNull" else "is not null", str(condition.attribute()), ()
        case "And" | "Or":
            conditions = (_plain(condition.left()), _plain(condition.right()))
            return None if None in conditions else (name.lower(), conditions)
    return None


def _value(value: Any) -> Any:
    """Convert a JVM value to Python, None for unsupported types."""
    if isinstance(value, (bool, int, float, str, bytes, decimal.Decimal, dt.date)):
        return value
    is_date = hasattr(value, "getClass") and class_name(value) in {"Date", "LocalDate"}
    return dt.date.fromisoformat(str(value.toString())) if is_date else None
