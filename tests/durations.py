"""A pytest plugin that reports where the time of a test run goes: per file and phase, and per fixture.

Loaded with ``-p tests.durations`` (`tools/test.sh`). Times are wall seconds, summed up over the test processes. A run
of the quick set alone fails if a test takes too long without a reason (``@pytest.mark.long("reason")``).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FILES, MOST_FIXTURES = 25, 10
"""Lines of the tables: the files below them take less than a minute each."""
LONGEST = 20.0
"""Seconds that a test of the quick set may take on two cores, which nothing else should keep busy; most take one."""


@dataclass
class FileTimes:
    """The time of a file's tests, in seconds by phase (``setup``, ``call``, ``teardown``)."""

    tests: int = 0
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def total(self) -> float:
        """All phases together."""
        return sum(self.phases.values())


class Durations:
    """Collects the reports of tests, and the set-up times of fixtures, of one process or of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: dict[str, FileTimes] = defaultdict(FileTimes)
        self.fixtures: dict[str, list[float]] = defaultdict(list)
        self.is_quick = "not thorough" in config.option.markexpr
        self.too_long: list[str] = []
        self._nested: list[float] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a phase to its file, and note a test that takes too long."""
        times = self.files[report.nodeid.partition("::")[0]]
        times.tests += report.when == "call"
        times.phases[report.when or ""] += report.duration
        if self.is_quick and report.when == "call" and report.duration > LONGEST and "long" not in report.keywords:
            self.too_long.append(f"{report.duration:.0f} s: {report.nodeid}")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        """Measure the set-up of a fixture, without the fixtures that it requests meanwhile."""
        self._nested.append(0.0)
        start = perf_counter()
        try:
            return (yield)
        finally:
            elapsed = perf_counter() - start
            self.fixtures[fixturedef.argname].append(elapsed - self._nested.pop())
            if self._nested:
                self._nested[-1] += elapsed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the times of a worker's fixtures to the process that reports; there, fail if a test takes too long."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["fixtures"] = dict(self.fixtures)
        elif self.too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the times of a worker's fixtures; a worker that died has sent none."""
        for name, times in getattr(node, "workeroutput", {}).get("fixtures", {}).items():
            self.fixtures[name] += times

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write both tables, the slowest first."""
        write = terminalreporter.write_line
        files = sorted(self.files.items(), key=lambda item: -item[1].total)
        write(f"seconds per file ({sum(times.total for _, times in files):.0f} in all): total, set-up, calls, tests")
        for name, times in files[:MOST_FILES]:
            write(
                f"{times.total:7.1f} {times.phases['setup']:7.1f} {times.phases['call']:7.1f} {times.tests:5d}  {name}"
            )
        for test in self.too_long:
            write(f"a quick test over {LONGEST:.0f} s (mark it thorough, or long with a reason): {test}", red=True)
        fixtures = sorted(self.fixtures.items(), key=lambda item: -sum(item[1]))
        write("seconds per fixture, without those that it requests: total, set-ups")
        for name, durations in fixtures[:MOST_FIXTURES]:
            write(f"{sum(durations):7.1f} {len(durations):5d}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in every process of the run."""
    config.pluginmanager.register(Durations(config))
