"""The page on dbt, with dbt-spark: a session that Penstock serves, and a Spark Connect server of Penstock."""

from __future__ import annotations

import pytest

from tests.integrations.stack_page import StackPage

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> StackPage:
    return StackPage("dbt", tmp_path_factory.mktemp("dbt"))


def test_models_and_tests_run_as_jobs_named_after_their_statements(page: StackPage) -> None:
    build, jobs = page.commands[:2]
    for _ in range(2):  # the second run replaces the rows of the incremental model
        assert "PASS=5 WARN=0 ERROR=0 SKIP=0" in page.run(build)
    listed = page.run(jobs)
    for name in ("create or replace table shop.revenue", "insert overwrite table shop.revenue", "count(*)"):
        assert name in listed, listed
    assert "/*" not in listed
