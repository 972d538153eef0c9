"""The page on Airflow, with Airflow: Penstock runs the queries of `@task.pyspark` and of `SparkSubmitOperator`."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integrations.stack_page import StackPage

pytestmark = pytest.mark.slow


def test_both_kinds_of_tasks_run_as_jobs(tmp_path: Path) -> None:
    page = StackPage("airflow")
    page.write_files(tmp_path)
    output = page.run(page.commands[0], tmp_path, COLUMNS="200", NO_COLOR="1")
    jobs = output.rpartition(" name ")[2]
    assert "write.parquet at orders.py:" in jobs, output
    assert "write.parquet at report.py:" in jobs, output
    assert jobs.count("finished") == 2
    assert "clientserver connection" not in output
    revenue = [sum(i % 97 for i in range(100_000) if i % 2 == parity) for parity in (0, 1)]
    rows = pq.read_table(tmp_path / "report").to_pylist()
    assert {row["parity"]: row["sum(revenue)"] for row in rows} == dict(enumerate(revenue))
