"""Row counts of exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.spark.bridge.jvm import Bridge
from penstock.spark.plans import catalyst
from penstock.spark.run import exchange, jobs
from penstock.spark.run.exchange import broadcasts, writes
from penstock.spark.run.jobs import StageRun, active_session, executor_addresses, has_rerun_tasks
from tests.spark.plans.relations import RELATIONS, relation_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("lost", "repeated", "exact"),
    [
        pytest.param(set(), True, 100, id="no executor is lost"),
        pytest.param({"gone:1"}, False, 100, id="an idle executor is lost"),
        pytest.param({"gone:1"}, True, None, id="an executor is lost with what it had written"),
    ],
)
def test_rows_are_exact_unless_a_task_ran_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, lost: set[str], *, repeated: bool, exact: int | None
) -> None:
    bridge = Bridge(spark)
    seen = iter([lost])
    monkeypatch.setattr(writes, "executor_addresses", lambda bridge: next(seen, set()) | executor_addresses(bridge))
    monkeypatch.setattr(writes, "has_rerun_tasks", lambda bridge: repeated)
    with active_session(bridge.session):
        plan = catalyst.optimized_plan(bridge, spark.range(100).repartition(3, "id"))
        result = exchange.write(bridge.session, plan)
    assert result.rows == 100
    assert result.exact_rows == exact


@pytest.mark.parametrize(("lost", "is_counted_once"), [(set(), True), ({"gone:1"}, False)])
def test_rows_of_a_relation_are_exact_but_its_scans_may_count_twice(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, lost: set[str], *, is_counted_once: bool
) -> None:
    bridge = Bridge(spark)
    seen = iter([lost])
    for module in (broadcasts, writes):
        monkeypatch.setattr(module, "executor_addresses", lambda bridge: next(seen, set()) | executor_addresses(bridge))
    monkeypatch.setattr(writes, "has_rerun_tasks", lambda bridge: True)
    with active_session(bridge.session):
        _, result, _ = relation_of(spark, bridge, *RELATIONS["longs"])
    assert (result.exact_rows, result.is_counted_once) == (4, is_counted_once)


def test_a_stage_that_spark_has_dropped_counts_as_repeated(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = Bridge(spark)
    with active_session(bridge.session):
        assert not has_rerun_tasks(bridge)
        dropped = StageRun(1 << 30, 1, 1)
        monkeypatch.setattr(jobs, "stages_of", lambda bridge, group: [dropped])
        assert has_rerun_tasks(bridge)


def test_unmeasured_results_have_no_size(spark: SparkSession) -> None:
    bridge = Bridge(spark)
    with active_session(bridge.session):
        result = exchange.write(bridge.session, catalyst.optimized_plan(bridge, spark.range(3)))
    assert (result.rows, result.size_in_bytes) == (None, None)
