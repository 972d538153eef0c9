"""What an exchange tells of the rows that it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.spark import catalyst, exchange
from penstock.spark.jobs import active_session, executors_of
from penstock.spark.jvm import Bridge

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
    monkeypatch.setattr(exchange, "executors_of", lambda bridge: next(seen, set()) | executors_of(bridge))
    monkeypatch.setattr(exchange, "has_repeated_tasks", lambda bridge: repeated)
    with active_session(bridge.session):
        plan = catalyst.optimized_plan(bridge, spark.range(100).repartition(3, "id"))
        result = exchange.write(bridge.session, plan)
    assert result.rows == 100
    assert result.exact_rows == exact
