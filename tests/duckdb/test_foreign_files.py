"""Parquet files of several writers: DuckDB returns the rows of Spark, or declines with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Environment
from penstock.spark.plans.dataframes import with_settings
from tests.conftest import OFF
from tests.duckdb.foreign_files import CASES
from tests.duckdb.traps import exact
from tests.support.native import compute_all_natively
from tests.support.outcomes import outcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

WAYS = {
    "single task": {"execution.batch.adaptive.whole-query-threshold": 1},
    "many tasks": OFF | {"execution.native": True, "execution.verify": False},
}


RUNS = [
    pytest.param(name, way, id=f"{name}, {way}", marks=() if case.native or way == "single task" else pytest.mark.slow)
    for name, case in CASES.items()
    for way in WAYS
]
"""Files that DuckDB declines in a single task are also declined in many, so that these runs are slow tests."""


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
    compute_all_natively(monkeypatch)
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
            assert_read(env, df if way == "single task" else df.repartition(3, "n"), case.native)


def assert_read(env: Environment, df: DataFrame, native: bool) -> None:
    """Check the rows or error of a query, and that DuckDB has read the table or a decision has a reason."""
    assert exact(outcome(lambda: env.collect(df))) == exact(outcome(df.collect))
    assert env.last_job is not None
    decisions = [
        decision
        for decision in env.last_job.decisions
        if decision.kind == "native" and "keys is read" not in str(decision.explanation)
    ]
    computed = [
        str(decision.chosen).startswith("DuckDB") and "instead" not in decision.outcome for decision in decisions
    ]
    assert any(computed) == native, [(decision.chosen, decision.reason, decision.outcome) for decision in decisions]
    assert all(decision.reason for decision in decisions)
