"""Detection of deliberate breaches: rows in the wrong partition, filters that drop a key."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from penstock.spark.bridge.handles import Partitioning
from penstock.spark.bridge.jvm import PHYSICAL, Bridge
from penstock.spark.plans import catalyst
from penstock.spark.run import exchange, filters
from penstock.spark.run.jobs import active_session
from penstock.spark.run.verification import check_layout, dropped_keys_condition, has_matching_row, range_layout
from tests.spark.plans.relations import RELATIONS, relation_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def breaks(side: Any, relation: Any, keys: Any, key_set: Any) -> Any:
    """Return whether a query, and a scan of the relation, detect a dropped key."""
    breach = dropped_keys_condition(keys, key_set)
    by_query = has_matching_row(side._bridge.session, side, breach)
    return by_query, filters.any_row_matches(relation, side.output, breach)


@pytest.mark.parametrize("max_exact", [10_000, 2], ids=["exact", "bounds"])
@pytest.mark.parametrize("name", RELATIONS)
def test_filters_that_drop_keys_are_detected(spark: SparkSession, name: Any, max_exact: int) -> None:
    schema, rows = RELATIONS[name]
    bridge = Bridge(spark)
    with active_session(bridge.session):
        side, result, keys = relation_of(spark, bridge, schema, rows)
        key_set = filters.collect_relation_keys(result.relation, side.output, keys, result.rows, max_exact)
        assert key_set is not None
        assert breaks(side, result.relation, keys, key_set) == (False, False)
        nothing = dataclasses.replace(key_set, is_empty=True)
        assert breaks(side, result.relation, keys, nothing) == (True, True)
        if result.rows > 1:  # the keys of a single row, so that the filter drops others
            few = spark.createDataFrame(rows[:1], schema.replace("int, v", "int")).coalesce(1)
            leaf = catalyst.optimized_plan(bridge, few)
            columns = leaf.output.columns()[: len(keys)]
            fewer = filters.collect_keys(bridge.session, leaf, columns, 1, max_exact)
            assert breaks(side, result.relation, keys, fewer) == (True, True)


@pytest.mark.parametrize(
    ("spans", "claim"),
    [
        ([(0, 2), (2, 5)], None),
        ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], None),
        ([(0, 3), (3, 5)], "of which task 1 reads 3 to 5; it has a row of 2"),
        ([(2, 5), (0, 2)], "it has a row of"),
        ([(0, 5)], "read by 1 tasks; there is a task 1"),
    ],
    ids=["correct", "single subpartitions", "wrong boundary", "swapped", "too few tasks"],
)
def test_rows_in_the_wrong_partition(spark: SparkSession, spans: Any, claim: str | None) -> None:
    bridge = Bridge(spark)
    read = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)] if len(spans) == 5 else [(0, 2), (2, 5)]
    with active_session(bridge.session):
        df = spark.range(5000).repartition(5, "id")
        plan = catalyst.optimized_plan(bridge, df)
        result, output = exchange.write(bridge.session, plan), plan.output
        hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq([output.columns()[0]]), 5)
        rows = exchange.read_ranges(result, read).rows()
        verified = check_layout(
            rows, range_layout(Partitioning(bridge, hashing), spans), output, "the input a of v2"
        )._handle
        if claim is None:
            assert verified.count() == 5000
            return
        with pytest.raises(Py4JJavaError, match="the input a of v2 claims rows hashed by .*" + claim):
            verified.count()
