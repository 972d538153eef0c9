"""What Spark's planner makes of leaves that claim merged subpartitions."""

import pytest

from penstock.spark import exchange, fragment
from penstock.spark.jvm import Bridge, class_name


@pytest.fixture(scope="module")
def bridge(spark):
    return Bridge(spark)


@pytest.fixture(scope="module")
def join(spark):
    left, right = spark.range(40).toDF("k"), spark.range(40).toDF("j")
    plan = left.join(right.hint("merge"), left.k == right.j)._jdf.queryExecution().optimizedPlan()
    while class_name(plan) != "Join":
        plan = plan.child()
    return plan


def leaf(bridge, side, tasks, layout):
    output = side.output()
    rdd = bridge.spark.range(0, 40, 1, tasks)._jdf.queryExecution().toRdd()
    found = fragment.joint_layout(bridge, [output.apply(0)], tasks) if layout else None
    return fragment.rdd_leaf(
        bridge, bridge.session, output, rdd, layout=exchange.shareable(bridge, found) if layout == "shared" else found
    )


def exchanges(plan):
    names = [class_name(plan)] if class_name(plan) == "ShuffleExchangeExec" else []
    return names + [name for i in range(plan.children().size()) for name in exchanges(plan.children().apply(i))]


CASES = {
    # left tasks and claim, right tasks and claim: how many exchanges, None where planning is refused
    "cut alike": ((3, "shared"), (3, "shared"), 0),
    "cut otherwise": ((3, "shared"), (4, "shared"), None),
    "one claims nothing": ((3, "shared"), (3, ""), None),
    "the other one": ((3, ""), (3, "shared"), None),
    "true, but not shared": ((3, "true"), (3, "true"), 2),
    "one of them is not shared": ((3, "true"), (3, ""), 2),
    "nothing claimed": ((3, ""), (3, ""), 2),
}


@pytest.mark.parametrize("case", CASES)
def test_exchanges_of_a_join(bridge, join, case):
    left, right, expected = CASES[case]
    leaves = [
        leaf(bridge, side, *claim) for side, claim in zip((join.left(), join.right()), (left, right), strict=True)
    ]
    plan = join.withNewChildren(bridge.seq(leaves))
    if expected is None:
        with pytest.raises(Exception) as error:  # noqa: PT011
            exchange.physical_plan(bridge, bridge.session, plan)
        assert exchange.is_refused(error.value)
        return
    physical = exchange.physical_plan(bridge, bridge.session, plan)
    assert len(exchanges(physical.initialPlan())) == expected
    assert exchange.joins_its_leaves(physical) is (expected == 0)


def test_a_layout_follows_its_columns(spark, bridge):
    """Its keys are spelt in the columns of the leaf that stands for the plan; it is none where a key is missing."""
    plan = spark.range(40).selectExpr("id % 7 a", "id b").repartition(4, "a")._jdf.queryExecution().executedPlan()
    other = spark.range(1).selectExpr("id x", "id y")._jdf.queryExecution().optimizedPlan().output()
    physical = plan.initialPlan()
    assert exchange.layout(bridge, physical, other).toString() == f"hashpartitioning({other.apply(0).toString()}, 4)"
    assert exchange.layout(bridge, physical, bridge.seq([other.apply(0)])) is None
