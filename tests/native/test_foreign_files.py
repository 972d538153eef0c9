"""Parquet files of several writers: DuckDB gives the rows that Spark reads, or declines and says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Environment
from penstock.spark.dataframes import with_settings
from tests.conftest import OFF
from tests.native.bounds import all_that_can_be
from tests.native.foreign_files import CASES
from tests.native.traps import exact
from tests.outcomes import outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

WAYS = {
    "one task": {"execution.batch.adaptive.whole-query-threshold": 1},
    "many tasks": OFF | {"execution.native": True, "execution.verify": False},
}


RUNS = [
    pytest.param(name, way, id=f"{name}, {way}", marks=() if case.native or way == "one task" else pytest.mark.slow)
    for name, case in CASES.items()
    for way in WAYS
]
"""What DuckDB declines in one task it declines in many, for the same reasons."""


@pytest.fixture(scope="module")
def keys(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("keys") / "keys.parquet"
    pq.write_table(pa.table({"m": pa.array(range(20), pa.int32())}), path)
    spark.read.parquet(str(path)).createOrReplaceTempView("keys")
    yield
    for name in ("t", "keys"):
        spark.catalog.dropTempView(name)


@pytest.mark.parametrize(("name", "way"), RUNS)
@pytest.mark.usefixtures("keys")
def test_files(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    way: str,
) -> None:
    all_that_can_be(monkeypatch)
    env, case = Environment(spark, config=WAYS[way], progress=False), CASES[name]
    with with_settings(spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        case.write(spark, tmp_path)
        reader = spark.read if case.schema is None else spark.read.schema(case.schema)
        unreadable = outcome(lambda: reader.parquet(str(tmp_path)).createOrReplaceTempView("t"))
        if unreadable is not None:
            assert not case.native, unreadable
            return
        for condition in case.where:
            df = spark.sql(f"select n, x from t join keys on n = m where {condition}")
            assert_read(env, df if way == "one task" else df.repartition(3, "n"), case.native)


def assert_read(env: Environment, df: DataFrame, native: bool) -> None:
    """Check the rows of a query, or its error; and that DuckDB has read the table, or a decision says why not."""
    assert exact(outcome(lambda: env.collect(df))) == exact(outcome(df.collect))
    assert env.last_job is not None
    decisions = [
        each for each in env.last_job.decisions if each.kind == "native" and "keys is read" not in str(each.told)
    ]
    computed = [str(each.chosen).startswith("DuckDB") and "instead" not in each.outcome for each in decisions]
    assert any(computed) == native, [(each.chosen, each.reason, each.outcome) for each in decisions]
    assert all(each.reason for each in decisions)
