"""The page on Dagster, with Dagster: the decisions of a job are metadata of an asset."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integrations.stack_page import StackPage
from tests.support.outputs import lines_not_printed

pytestmark = pytest.mark.slow


def test_decisions_are_metadata(tmp_path: Path) -> None:
    page = StackPage("dagster")
    page.write_files(tmp_path)
    output = page.run(page.commands[0], tmp_path, COLUMNS="200", NO_COLOR="1")
    assert lines_not_printed("\n".join(page.samples), output) == [], output
    revenue = [sum(i % 97 for i in range(100_000) if i % 2 == parity) for parity in (0, 1)]
    rows = pq.read_table(tmp_path / "revenue").to_pylist()
    assert {row["parity"]: row["sum(revenue)"] for row in rows} == dict(enumerate(revenue))
    jobs = output.rpartition(" name ")[2]
    assert "write.parquet at shop.py:19" in jobs, output
    assert jobs.count("finished") == 2
