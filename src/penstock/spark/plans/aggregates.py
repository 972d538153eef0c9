"""Splits an aggregate into the functions that it computes for each group, and the expressions over their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, children, class_name, class_names, items, with_fields
from penstock.spark.plans.catalyst import attribute_ids, transform
from penstock.spark.plans.expressions import Attributes, Expression, alias
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


def grouping_positions(aggregate: LogicalNode) -> tuple[int, ...] | None:
    """Return the positions of the grouping columns in an aggregate's input, None if it groups by a computed value."""
    input_ids = aggregate.children[0].ids
    groups = attribute_ids(aggregate._handle.groupingExpressions())
    return tuple(map(input_ids.index, groups)) if set(groups) <= set(input_ids) - {""} else None


def aggregate_functions(aggregate: LogicalNode) -> dict[str, Expression] | None:
    """Return the functions (``AggregateExpression``) of an aggregate by key; None if any of them cannot be compared.

    The keys identify columns by their position in the input, so equal functions of equal inputs have equal keys
    (``ExpressionKeys.java``). The functions are sorted by key.
    """
    bridge, input_columns = aggregate._bridge, aggregate.children[0]._handle.output()
    functions: dict[str, Expression] = {}
    todo = items(aggregate._handle.aggregateExpressions())
    while todo:
        expression = todo.pop()
        match class_name(expression):
            case "AggregateExpression":
                if not expression.deterministic():  # its calls may return different values
                    return None
                key = str(bridge.helper("ExpressionKeys").byPosition(expression, input_columns))
                functions.setdefault(key, Expression(bridge, expression))
            case "AttributeReference":
                pass
            case "PythonUDAF":
                return None
            case _:
                todo += children(expression)
    return dict(sorted(functions.items()))


def split_aggregate(aggregate: LogicalNode, functions: Mapping[str, Expression]) -> LogicalPlan:
    """Return a ``Project`` with an aggregate's output over an ``Aggregate`` that returns groups and function values."""
    bridge = aggregate._bridge
    columns_by_key = {function.key: alias(bridge, function, f"f{i}") for i, function in enumerate(functions.values())}

    def attribute(expression: Any) -> Any | None:
        if class_name(expression) != "AggregateExpression":
            return None
        return columns_by_key[Expression(bridge, expression).key].toAttribute()

    columns = items(aggregate._handle.groupingExpressions()) + list(columns_by_key.values())
    inner_aggregate = with_fields(bridge, aggregate._handle, aggregateExpressions=bridge.seq(columns))
    results = [transform(expression, attribute) for expression in items(aggregate._handle.aggregateExpressions())]
    return LogicalPlan(bridge, inner_aggregate).projected(Attributes(bridge, bridge.seq(results)))


_ORDER_INDEPENDENT = class_names(
    "Count HyperLogLogPlusPlus Min Max StddevSamp StddevPop VarianceSamp VariancePop Skewness Kurtosis Corr "
    "CovPopulation CovSample BitAndAgg BitOrAgg BitXorAgg"
)
"""Functions of `catalyst.MERGEABLE` that cannot overflow."""


def merges_in_any_order(bridge: Bridge, function: Any) -> bool:
    """Whether the order of merging partial results affects only the last digits of doubles, and no merge overflows."""
    name = class_name(function)
    return name in _ORDER_INDEPENDENT or (
        name in {"Sum", "Average"} and bool(bridge.helper("ExpressionSafety").cannotOverflow(function))
    )
