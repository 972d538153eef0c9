"""The plugin of pytest: a Spark session that Penstock serves, shared by all tests and isolated for each.

A project names it in its ``conftest.py``. There is no entry point: pytest would then rewrite the assertions of all of
Penstock, and functions that Spark pickles would refer to pytest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.integrations.activity import Activity, ActivityMonitor

_PROPERTY = "penstock"
"""Name of the property of a test with the lines of its report."""
_MONITOR = pytest.StashKey["ActivityMonitor"]()
_NUMBERS = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that shows what ran, and the settings of the session."""
    parser.getgroup("penstock").addoption(
        "--penstock-report", action="store_true", help="show for each test which queries ran, and how"
    )
    parser.addini("penstock_conf", "settings of the Spark session of tests, a KEY=VALUE in each line", "linelist", [])


@pytest.fixture(scope="session")
def penstock_application(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """Return the session that starts Spark, once for all tests; override it to use another Spark."""
    import penstock
    from penstock.spark.bridge.session import embedded_session

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",  # for queries that Spark runs itself
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    settings |= dict(_setting(line) for line in request.config.getini("penstock_conf"))
    session = penstock.enable(embedded_session(settings.pop("spark.master", "local[2]"), settings))
    yield session
    session.stop()


@pytest.fixture
def penstock_spark(penstock_application: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Return a session for a test, with its own settings, temporary views and database; Penstock runs its queries."""
    from penstock.integrations.activity import ActivityMonitor
    from penstock.spark.bridge.jvm import Bridge

    session = penstock_application.newSession()
    database = f"test_{next(_NUMBERS)}"
    session.sql(f"CREATE DATABASE {database}")
    session.sql(f"USE {database}")
    request.node.stash[_MONITOR] = monitor = ActivityMonitor(Bridge(session))
    try:
        yield session
        request.node.user_properties.append((_PROPERTY, _report(monitor.activity())))  # also with xdist
        for query in session.streams.active:
            query.stop()
    finally:
        session.catalog.clearCache()
        session.sql(f"DROP DATABASE {database} CASCADE")


@pytest.fixture
def penstock_activity(penstock_spark: SparkSession, request: pytest.FixtureRequest) -> ActivityMonitor:
    """Return the monitor of a test; its `activity()` has the jobs so far, and the queries that Spark ran itself."""
    del penstock_spark
    monitor: ActivityMonitor = request.node.stash[_MONITOR]
    return monitor


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show which queries the tests ran, and how."""
    if not config.getoption("penstock_report"):
        return
    terminalreporter.section("queries of tests, by Penstock")
    for report in [report for reports in terminalreporter.stats.values() for report in reports]:
        lines = dict(getattr(report, "user_properties", ())).get(_PROPERTY)
        if lines is not None and report.when == "teardown":
            terminalreporter.line("\n".join([report.nodeid, *(f"  {line}" for line in lines)]))


def _report(activity: Activity) -> list[str]:
    """Return a line for each job, each of its decisions, and what Spark ran itself."""
    lines = [line for job in activity.jobs for line in (f"{job.name}: {job.summary}", *_indented(job.decision_lines()))]
    return [*lines, *filter(None, [activity.note])]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _setting(line: str) -> tuple[str, str]:
    key, separator, value = line.partition("=")
    if not separator:
        raise pytest.UsageError(f"penstock_conf has the line {line!r}: write KEY=VALUE")
    return key.strip(), value.strip()
