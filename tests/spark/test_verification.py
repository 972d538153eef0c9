"""Breaches are made here, and must be found: rows that lie elsewhere, filters that leave out a key."""

import dataclasses

import pytest
from py4j.protocol import Py4JJavaError

from penstock.spark import catalyst, exchange, filters
from penstock.spark.jobs import active_session
from penstock.spark.jvm import PHYSICAL, Bridge
from penstock.spark.verification import checked, is_met, ruled_out, span_layout
from tests.spark.relations import RELATIONS, relation_of


def breaks(bridge, side, relation, keys, found):
    """Return what both ways of looking say: a query, and a look at the relation."""
    breach = ruled_out(bridge, keys, found)
    by_query = is_met(bridge, bridge.session, side, breach)
    return by_query, filters.is_met_in_relation(bridge, relation, side.output(), breach)


@pytest.mark.parametrize("most_exact", [10_000, 2], ids=["exact", "bounds"])
@pytest.mark.parametrize("name", RELATIONS)
def test_filters_that_keep_all_keys_or_not(spark, name, most_exact):
    schema, rows = RELATIONS[name]
    bridge = Bridge(spark)
    with active_session(bridge, bridge.session):
        side, result, keys = relation_of(spark, bridge, schema, rows)
        found = filters.keys_of_relation(bridge, result.relation, side.output(), keys, result.rows, most_exact)
        assert found is not None
        assert breaks(bridge, side, result.relation, keys, found) == (False, False)
        nothing = dataclasses.replace(found, is_empty=True)
        assert breaks(bridge, side, result.relation, keys, nothing) == (True, True)
        if result.rows > 1:  # of one row less, the filter leaves out a key
            few = spark.createDataFrame(rows[:1], schema.replace("int, v", "int")).coalesce(1)
            leaf = catalyst.optimized_plan(few)
            own = [leaf.output().apply(i) for i in range(len(keys))]
            fewer = filters.collect_keys(bridge, bridge.session, leaf, own, 1, most_exact)
            assert breaks(bridge, side, result.relation, keys, fewer) == (True, True)


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
def test_rows_that_lie_elsewhere(spark, spans, claim):
    bridge = Bridge(spark)
    read = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)] if len(spans) == 5 else [(0, 2), (2, 5)]
    with active_session(bridge, bridge.session):
        df = spark.range(5000).repartition(5, "id")
        result = exchange.write(bridge, bridge.session, catalyst.optimized_plan(df))
        output = result.above.output()
        hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq([output.apply(0)]), 5)
        rows = exchange.as_cut(bridge, result, read).execute()
        looked_at = checked(bridge, rows, span_layout(bridge, hashing, spans), output, "the input a of v2")
        if claim is None:
            assert looked_at.count() == 5000
            return
        with pytest.raises(Py4JJavaError, match="the input a of v2 claims rows hashed by .*" + claim):
            looked_at.count()
