"""Split an aggregate into the functions that it computes for each group, and the expressions over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, children, class_name, class_names, items, with_fields
from penstock.spark.plans.catalyst import attribute_ids, transform
from penstock.spark.plans.expressions import Attributes, Expression, alias
from penstock.spark.plans.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.plans.nodes import LogicalNode


def grouping(aggregate: LogicalNode) -> tuple[int, ...] | None:
    """Return the positions of the grouping columns in an aggregate's input, None if a group is an expression."""
    input_ids = aggregate.children[0].ids
    groups = attribute_ids(aggregate._handle.groupingExpressions())
    return tuple(map(input_ids.index, groups)) if set(groups) <= set(input_ids) - {""} else None


def aggregate_functions(aggregate: LogicalNode) -> dict[str, Expression] | None:
    """Return the distinct functions (``AggregateExpression``) of an aggregate, None if they cannot be distinguished.

    They are sorted by keys that identify columns by their position in the input, so equal functions of equal inputs
    have equal keys (``ExpressionKeys.java``).
    """
    bridge, columns = aggregate._bridge, aggregate.children[0]._handle.output()
    by_position: dict[str, Expression] = {}
    todo = items(aggregate._handle.aggregateExpressions())
    while todo:
        expression = todo.pop()
        match class_name(expression):
            case "AggregateExpression":
                if not expression.deterministic():
                    return None
                key = str(bridge.helper("ExpressionKeys").byPosition(expression, columns))
                by_position.setdefault(key, Expression(bridge, expression))
            case "AttributeReference":
                pass
            case "PythonUDAF":
                return None
            case _:
                todo += children(expression)
    return dict(sorted(by_position.items()))


def split(aggregate: LogicalNode, functions: Mapping[str, Expression]) -> LogicalPlan:
    """Return a ``Project`` over an ``Aggregate`` of only the groups and functions; the output is unchanged."""
    bridge = aggregate._bridge
    computed = {function.key: alias(bridge, function, f"f{i}") for i, function in enumerate(functions.values())}

    def attribute(expression: Any) -> Any | None:
        if class_name(expression) != "AggregateExpression":
            return None
        return computed[Expression(bridge, expression).key].toAttribute()

    columns = items(aggregate._handle.groupingExpressions()) + list(computed.values())
    inner = with_fields(bridge, aggregate._handle, aggregateExpressions=bridge.seq(columns))
    results = [transform(expression, attribute) for expression in items(aggregate._handle.aggregateExpressions())]
    return LogicalPlan(bridge, inner).projected(Attributes(bridge, bridge.seq(results)))


_ANY_ORDER = class_names(
    "Count HyperLogLogPlusPlus Min Max StddevSamp StddevPop VarianceSamp VariancePop Skewness Kurtosis Corr "
    "CovPopulation CovSample BitAndAgg BitOrAgg BitXorAgg"
)


def merges_in_any_order(bridge: Bridge, function: Any) -> bool:
    """Whether merging partial results of a function is independent of their order, and cannot overflow."""
    name = class_name(function)
    return name in _ANY_ORDER or (
        name in {"Sum", "Average"} and bool(bridge.helper("ExpressionSafety").cannotOverflow(function))
    )
