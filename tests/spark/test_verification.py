"""Breaches are made here, and must be found: rows that lie elsewhere, filters that leave out a key."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError

from penstock.spark import catalyst, exchange, filters
from penstock.spark.handles import Partitioning
from penstock.spark.jobs import active_session
from penstock.spark.jvm import PHYSICAL, Bridge
from penstock.spark.verification import checked, is_met, ruled_out, span_layout
from tests.spark.relations import RELATIONS, relation_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def breaks(side: Any, relation: Any, keys: Any, found: Any) -> Any:
    """Return what both ways of looking say: a query, and a look at the relation."""
    breach = ruled_out(keys, found)
    by_query = is_met(side._bridge.session, side, breach)
    return by_query, filters.is_met_in_relation(relation, side.output, breach)


@pytest.mark.parametrize("most_exact", [10_000, 2], ids=["exact", "bounds"])
@pytest.mark.parametrize("name", RELATIONS)
def test_filters_that_keep_all_keys_or_not(spark: SparkSession, name: Any, most_exact: int) -> None:
    schema, rows = RELATIONS[name]
    bridge = Bridge(spark)
    with active_session(bridge.session):
        side, result, keys = relation_of(spark, bridge, schema, rows)
        found = filters.keys_of_relation(result.relation, side.output, keys, result.rows, most_exact)
        assert found is not None
        assert breaks(side, result.relation, keys, found) == (False, False)
        nothing = dataclasses.replace(found, is_empty=True)
        assert breaks(side, result.relation, keys, nothing) == (True, True)
        if result.rows > 1:  # of one row less, the filter leaves out a key
            few = spark.createDataFrame(rows[:1], schema.replace("int, v", "int")).coalesce(1)
            leaf = catalyst.optimized_plan(bridge, few)
            own = leaf.output.columns()[: len(keys)]
            fewer = filters.collect_keys(bridge.session, leaf, own, 1, most_exact)
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
    ids=["as it is", "one each", "an edge too far", "the other way round", "too few tasks"],
)
def test_rows_that_lie_elsewhere(spark: SparkSession, spans: Any, claim: str | None) -> None:
    bridge = Bridge(spark)
    read = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)] if len(spans) == 5 else [(0, 2), (2, 5)]
    with active_session(bridge.session):
        df = spark.range(5000).repartition(5, "id")
        plan = catalyst.optimized_plan(bridge, df)
        result, output = exchange.write(bridge.session, plan), plan.output
        hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq([output.at(0)]), 5)
        rows = exchange.as_cut(result, read).rows()
        looked_at = checked(
            rows, span_layout(Partitioning(bridge, hashing), spans), output, "the input a of v2"
        )._handle
        if claim is None:
            assert looked_at.count() == 5000
            return
        with pytest.raises(Py4JJavaError, match="the input a of v2 claims rows hashed by .*" + claim):
            looked_at.count()
