"""TPC-DS queries give the same rows as plain Spark: some of them always, all 99 in the full run."""

import json

import pytest

from tests.equality import assert_same_rows

ALWAYS = {2, 8, 14, 23, 36, 39, 47, 51, 56, 67, 72, 77, 95, 98}


@pytest.fixture(scope="module")
def tables(spark, data):
    names = [file.stem for file in (data / "tpcds-0.1").glob("*.parquet")]
    for name in names:
        spark.read.parquet(str(data / "tpcds-0.1" / f"{name}.parquet")).createOrReplaceTempView(name)
    yield json.loads((data / "queries" / "tpcds.json").read_text())
    for name in names:
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize("number", [pytest.param(n, marks=[] if n in ALWAYS else pytest.mark.slow) for n in range(1, 100)])
def test_same_rows(spark, env, tables, number):
    text = tables[str(number)]
    found = env.collect(spark.sql(text))
    assert env.last_job.vertices
    assert_same_rows(found, spark.sql(text).collect())
