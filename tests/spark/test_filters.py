"""Keys of finished results: those of a broadcast relation are the same as a query for them gives."""

import pytest

from penstock.spark import catalyst, filters
from penstock.spark.jobs import active_session
from penstock.spark.jvm import Bridge, items
from tests.spark.relations import RELATIONS, relation_of


def as_text(found):
    """Return a key set as plain values."""
    exact = [sorted(str(value) for value in items(one.toSeq())) for one in found.exact]
    bounds = [None if pair is None else [str(end) for end in pair] for pair in found.bounds]
    return exact, bounds, str(found.bloom), found.is_empty


@pytest.mark.parametrize("most_exact", [10_000, 2], ids=["exact", "bounds"])
@pytest.mark.parametrize("name", RELATIONS)
def test_keys_of_a_relation_are_those_of_a_query(spark, name, most_exact):
    bridge = Bridge(spark)
    with active_session(bridge, bridge.session):
        side, result, keys = relation_of(spark, bridge, *RELATIONS[name])
        rows = result.rows
        expected = filters.collect_keys(bridge, bridge.session, side, keys, rows, most_exact)
        found = filters.keys_of_relation(bridge, result.relation, side.output(), keys, rows, most_exact)
    assert found is not None
    assert bool(found.exact) == (rows <= most_exact)
    if len(keys) == 1:  # of several keys a query also takes those of rows where another one is null
        assert as_text(found) == as_text(expected)
    else:
        assert found.rows == expected.rows
        for own, all_of_them in zip(found.exact, expected.exact, strict=True):
            assert all(all_of_them.contains(value) for value in items(own.toSeq()))


def test_a_relation_without_keys_has_none(spark):
    bridge = Bridge(spark)
    array = bridge.new_array("org.apache.spark.sql.catalyst.InternalRow", [])
    df = spark.range(1)
    plan = catalyst.optimized_plan(df)
    keys = [plan.output().apply(0)]
    assert filters.keys_of_relation(bridge, array, plan.output(), keys, 5, 10) is None
