"""Keys of finished results: those of a broadcast relation are the same as a query for them gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark import catalyst, filters
from penstock.spark.handles import HashedRelation
from penstock.spark.jobs import active_session
from penstock.spark.jvm import Bridge, items
from tests.spark.relations import RELATIONS, relation_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def as_text(found: Any) -> Any:
    """Return a key set as plain values."""
    exact = [sorted(str(value) for value in items(one._handle.toSeq())) for one in found.exact]
    bounds = [None if pair is None else [str(end._handle) for end in pair] for pair in found.bounds]
    return exact, bounds, str(found.bloom and found.bloom._handle), found.is_empty


@pytest.mark.parametrize("most_exact", [10_000, 2], ids=["exact", "bounds"])
@pytest.mark.parametrize("name", RELATIONS)
def test_keys_of_a_relation_are_those_of_a_query(spark: SparkSession, name: Any, most_exact: int) -> None:
    bridge = Bridge(spark)
    with active_session(bridge.session):
        side, result, keys = relation_of(spark, bridge, *RELATIONS[name])
        rows = result.rows
        expected = filters.collect_keys(bridge.session, side, keys, rows, most_exact)
        found = filters.keys_of_relation(result.relation, side.output, keys, rows, most_exact)
    assert found is not None
    assert bool(found.exact) == (rows <= most_exact)
    if len(keys) == 1:  # of several keys a query also takes those of rows where another one is null
        assert as_text(found) == as_text(expected)
    else:
        assert found.rows == expected.rows
        for own, all_of_them in zip(found.exact, expected.exact, strict=True):
            assert all(all_of_them._handle.contains(value) for value in items(own._handle.toSeq()))


def test_a_relation_without_keys_has_none(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    array = HashedRelation(bridge, bridge.new_array("org.apache.spark.sql.catalyst.InternalRow", []), 0)
    output = catalyst.optimized_plan(bridge, spark.range(1)).output
    assert filters.keys_of_relation(array, output, output.columns(), 5, 10) is None
