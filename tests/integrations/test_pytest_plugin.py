"""The plugin of pytest in a project of its own: tests share Spark, and do not see what other tests did."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
import pytest

@pytest.fixture
def orders(penstock_spark):
    return penstock_spark.range(10_000).selectExpr("id % 7 AS customer", "id AS amount")

def test_a_job(orders, penstock_activity):
    assert orders.groupBy("customer").count().count() == 7
    assert [job.state for job in penstock_activity.activity().jobs] == ["FINISHED"]

def test_what_spark_runs(penstock_spark, penstock_activity):
    assert len(penstock_spark.range(3).collect()) == 3
    assert penstock_activity.activity().jobs == ()
    assert sum(penstock_activity.activity().run_by_spark.values()) == 1

@pytest.mark.parametrize("turn", [1, 2])
def test_isolation(penstock_spark, turn):
    assert penstock_spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert penstock_spark.catalog.listTables() == []
    assert len(penstock_spark.sparkContext._jsc.getPersistentRDDs()) == 0
    penstock_spark.conf.set("spark.sql.shuffle.partitions", "5")
    rows = penstock_spark.range(turn)
    rows.createTempView("view")
    rows.write.saveAsTable("rows")
    assert rows.cache().count() == turn
    assert len(penstock_spark.table("rows").collect()) == turn

def test_without_spark():
    pass
"""
SETTINGS = """
[pytest]
addopts = -p penstock.integrations.pytest_plugin
penstock_conf =
    spark.sql.shuffle.partitions=3
    spark.penstock.execution.batch.adaptive.whole-query-threshold=0
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.thorough
def test_a_project_with_tests(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(PROJECT)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    outcome = run(tmp_path, "--penstock-report")
    assert "5 passed" in outcome.stdout, outcome.stdout + outcome.stderr
    report = outcome.stdout.partition("queries of tests, by Penstock")[2].splitlines()
    assert any(line.startswith("  count at test_orders.py:") for line in report), report
    assert any("Spark ran queries itself: 1 " in line for line in report)
    assert not any("test_without_spark" in line for line in report)


def test_a_project_that_does_not_name_it_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test():\n    from penstock.rebalance import network\n\n"
        "    assert '@pytest_ar' not in vars(network)  # assertions of Penstock are not rewritten\n"
        "    assert 'penstock.integrations' not in sys.modules\n"
    )
    outcome = run(tmp_path)
    assert "1 passed" in outcome.stdout, outcome.stdout + outcome.stderr
