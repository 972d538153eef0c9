"""Pytest plugin that starts no tests after a deadline, and reports how many were skipped.

Loaded with ``-p tests.support.deadline`` if ``TEST_SECONDS`` is set; ``TEST_END`` is then the deadline in seconds since 1970
(`tools/test.sh`). The order of the files changes daily, so that other files are skipped each day.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import time
from zlib import crc32

import pytest

from tests.support.order import rank

SECONDS_PER_DAY = 24 * 60 * 60


class Deadline:
    """The deadline of a test run, in each of its processes.

    Parameters
    ----------
    deadline
        The deadline for starting a test, in seconds since 1970. Running tests are not interrupted.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.day = int(deadline // SECONDS_PER_DAY)
        self.collected = 0
        self.started: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort the files by a hash of the day; tests that fork stay first, and those that leave hanging threads last."""
        items.sort(key=lambda item: (rank(item), crc32(f"{self.day}{item.path}".encode())))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the selected tests of a run in a single process."""
        self.collected = max(self.collected, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Count the selected tests of a run in several processes; each process collects all tests."""
        self.collected = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Skip a test after the deadline."""
        return True if time() > self.deadline else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a started test."""
        self.started.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report the number of skipped tests."""
        if skipped := self.collected - len(self.started):
            terminalreporter.write_line(
                f"{skipped} of {self.collected} tests were skipped after the deadline: make test-full runs all"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in every process of the run."""
    config.pluginmanager.register(Deadline(float(os.environ["TEST_END"])))
