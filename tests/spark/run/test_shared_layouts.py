"""How Spark's planner handles leaves that declare coalesced subpartitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.bridge.handles import InternalRows, PhysicalPlan
from penstock.spark.bridge.jvm import Bridge, class_name
from penstock.spark.plans import catalyst, fragment
from penstock.spark.plans.nodes import read_plan
from penstock.spark.run import exchange, layouts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bridge(spark: SparkSession) -> Bridge:
    return Bridge(spark)


@pytest.fixture(scope="module")
def join(spark: SparkSession) -> Any:
    left, right = spark.range(40).toDF("k"), spark.range(40).toDF("j")
    df = left.join(right.hint("merge"), left.k == right.j)
    plan = read_plan(catalyst.optimized_plan(Bridge(spark), df))
    return next(node for node in plan.walk() if node.name == "Join")


def leaf(bridge: Bridge, side: Any, tasks: Any, layout: Any) -> Any:
    output = side.output
    rows = InternalRows(bridge, bridge.spark.range(0, 40, 1, tasks)._jdf.queryExecution().toRdd())
    declared = fragment.split_join_layout([output.columns()[0]], tasks) if layout else None
    claim = layouts.as_shareable(declared) if layout == "shared" else declared
    return fragment.rdd_leaf(bridge.session, output, rows, layout=claim)


def exchanges(plan: Any) -> Any:
    names = [class_name(plan)] if class_name(plan) == "ShuffleExchangeExec" else []
    return names + [name for i in range(plan.children().size()) for name in exchanges(plan.children().apply(i))]


CASES = {
    # left tasks and declaration, right tasks and declaration: the number of exchanges, None if planning is refused
    "equal boundaries": ((3, "shared"), (3, "shared"), 0),
    "different boundaries": ((3, "shared"), (4, "shared"), None),
    "the right side declares nothing": ((3, "shared"), (3, ""), None),
    "the left side declares nothing": ((3, ""), (3, "shared"), None),
    "true, but not shared": ((3, "true"), (3, "true"), 2),
    "a side is not shared": ((3, "true"), (3, ""), 2),
    "nothing declared": ((3, ""), (3, ""), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_exchanges_of_a_join(bridge: Any, join: Any, case: str) -> None:
    left, right, expected = CASES[case]
    plan = join.with_children(
        [leaf(bridge, side, *claim) for side, claim in zip(join.children, (left, right), strict=True)]
    )
    if expected is None:
        with pytest.raises(Exception) as error:  # noqa: PT011
            exchange.physical_plan(bridge.session, plan)
        assert layouts.is_repartition_refused(error.value)
        return
    physical = exchange.physical_plan(bridge.session, plan)
    assert len(exchanges(physical._handle.initialPlan())) == expected
    assert layouts.joins_its_leaves(physical) is (expected == 0)


def test_a_layout_follows_its_columns(spark: SparkSession, bridge: Any) -> None:
    """Its keys are translated to the columns of the leaf; there is no layout if a key is missing."""
    plan = spark.range(40).selectExpr("id % 7 a", "id b").repartition(4, "a")._jdf.queryExecution().executedPlan()
    other = catalyst.optimized_plan(bridge, spark.range(1).selectExpr("id x", "id y")).output
    physical = PhysicalPlan(bridge, plan.initialPlan())
    assert layouts.layout(physical, other)._handle.toString() == f"hashpartitioning({other.columns()[0].text}, 4)"
    assert layouts.layout(physical, other.take([0])) is None
