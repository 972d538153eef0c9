"""The page on dbt, with dbt-spark: a project has the same rows with Penstock, in dbt's own process."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.integrations.stack_page import StackPage

pytestmark = pytest.mark.slow

QUIET = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1", "COLUMNS": "200"}
Tables = dict[str, list[tuple[object, ...]]]
"""The sorted rows of each table."""
PASSED = "Done. PASS=5 WARN=0 ERROR=0 SKIP=0"


@pytest.fixture(scope="module")
def page() -> StackPage:
    return StackPage("dbt")


@pytest.fixture
def project(page: StackPage, tmp_path: Path) -> Path:
    page.write_files(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def plain_rows(page: StackPage, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return the rows of the tables that dbt builds without Penstock."""
    folder = tmp_path_factory.mktemp("plain")
    page.write_files(folder)
    assert PASSED in page.run("dbt build", folder, **QUIET)
    return rows(folder)


def rows(folder: Path) -> Tables:
    """Return the rows of the tables of a project."""
    tables: Tables = {}
    for name in ("orders", "revenue"):
        table = pq.read_table(folder / "spark-warehouse" / "shop.db" / name)
        tables[name] = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return tables


def test_a_project_has_the_same_rows(page: StackPage, project: Path, plain_rows: Tables) -> None:
    # The second run replaces the rows of the incremental model.
    for statement in ("create table shop.revenue", "insert overwrite table shop.revenue"):
        output = page.run(page.commands[0], project, **QUIET)
        assert PASSED in output
        jobs = output.rpartition(" name ")[2]
        assert statement in jobs, output
        assert "count(*) as failures" in jobs
        assert rows(project) == plain_rows
    assert len(plain_rows["orders"]) == 100_000
    assert len(plain_rows["revenue"]) == 30
