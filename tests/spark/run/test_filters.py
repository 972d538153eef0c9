"""Keys of finished results: a broadcast relation has the same keys as a query for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.bridge.handles import HashedRelation
from penstock.spark.bridge.jvm import Bridge, items
from penstock.spark.plans import catalyst
from penstock.spark.run import filters
from penstock.spark.run.jobs import active_session
from tests.spark.plans.relations import RELATIONS, relation_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def as_text(key_set: Any) -> Any:
    """Return a key set as plain values."""
    exact = [sorted(str(value) for value in items(values._handle.toSeq())) for values in key_set.values]
    bounds = [None if pair is None else [str(end._handle) for end in pair] for pair in key_set.bounds]
    return exact, bounds, str(key_set.bloom and key_set.bloom._handle), key_set.is_empty


@pytest.mark.parametrize("max_exact", [10_000, 2], ids=["exact", "bounds"])
@pytest.mark.parametrize("name", RELATIONS)
def test_keys_of_a_relation_are_those_of_a_query(spark: SparkSession, name: Any, max_exact: int) -> None:
    bridge = Bridge(spark)
    with active_session(bridge.session):
        side, result, keys = relation_of(spark, bridge, *RELATIONS[name])
        rows = result.rows
        expected = filters.collect_keys(bridge.session, side, keys, rows, max_exact)
        actual = filters.collect_relation_keys(result.relation, side.output, keys, rows, max_exact)
    assert actual is not None
    assert bool(actual.values) == (rows <= max_exact)
    if len(keys) == 1:  # with several keys, the query includes rows with a null in another key
        assert as_text(actual) == as_text(expected)
    else:
        assert actual.rows == expected.rows
        for keys_of_relation, keys_of_query in zip(actual.values, expected.values, strict=True):
            assert all(keys_of_query._handle.contains(value) for value in items(keys_of_relation._handle.toSeq()))


def test_a_relation_without_keys_has_none(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    array = HashedRelation(bridge, bridge.new_array("org.apache.spark.sql.catalyst.InternalRow", []), 0)
    output = catalyst.optimized_plan(bridge, spark.range(1)).output
    assert filters.collect_relation_keys(array, output, output.columns(), 5, 10) is None
