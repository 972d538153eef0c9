"""A pytest plugin that starts no more tests when a time is over, and says how many are left out.

Loaded with ``-p tests.deadline`` if ``TEST_SECONDS`` is set; ``TEST_END`` is then the end in seconds since 1970
(`tools/test.sh`). The files come in an order that changes every day, so that what does not fit on one day runs on
another.
"""

from __future__ import annotations

import os
from time import time
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS_OF_A_DAY = 24 * 60 * 60


class Deadline:
    """The end of a test run, in each of its processes.

    Parameters
    ----------
    end
        Until when tests are started, in seconds since 1970. One that runs by then runs to its end.
    """

    def __init__(self, end: float) -> None:
        self.end = end
        self.day = int(end // SECONDS_OF_A_DAY)
        self.collected = 0
        self.started: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Order the files by the day; tests that fork stay before all others."""
        items.sort(
            key=lambda item: (item.get_closest_marker("forks") is None, crc32(f"{self.day}{item.path}".encode()))
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the selected tests of a run in one process."""
        self.collected = max(self.collected, len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Count the selected tests of a run in several processes; each collects all."""
        self.collected = len(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Leave a test out if the time is over."""
        return True if time() > self.end else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was started."""
        self.started.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many tests were left out."""
        if left := self.collected - len(self.started):
            terminalreporter.write_line(
                f"{left} of {self.collected} tests were left out, as the time was over: make test-full runs all"
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in every process of the run."""
    config.pluginmanager.register(Deadline(float(os.environ["TEST_END"])))
