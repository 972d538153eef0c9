"""Pytest plugin that reports the duration of a test run per file and phase, and per fixture.

Loaded with ``-p tests.support.durations`` (`tools/test.sh`). Durations are wall seconds, summed over the test processes. A run
of the quick set (`sampling.py`) fails if a test takes too long without ``@pytest.mark.long("reason")``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import pytest

MAX_FILES, MAX_FIXTURES = 25, 10
"""Maximum lines of the tables; the other files take less than a minute each."""
MAX_SECONDS = 20.0
"""Maximum seconds of a test of the quick set on two idle cores; most take a second."""


@dataclass
class FileDurations:
    """The time of a file's tests, in seconds by phase (``setup``, ``call``, ``teardown``)."""

    tests: int = 0
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def seconds(self) -> float:
        """The seconds of all phases."""
        return sum(self.phases.values())


class Durations:
    """Durations of tests and fixtures in this process, and in the workers if this is the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: dict[str, FileDurations] = defaultdict(FileDurations)
        self.fixtures: dict[str, list[float]] = defaultdict(list)
        self.is_quick = "not thorough" in config.option.markexpr
        self.too_long: list[str] = []
        self._nested: list[float] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the duration of a phase to its file, and record a test over the limit."""
        times = self.files[report.nodeid.partition("::")[0]]
        times.tests += report.when == "call"
        times.phases[report.when or ""] += report.duration
        is_too_long = report.when == "call" and report.duration > MAX_SECONDS and "long" not in report.keywords
        if self.is_quick and is_too_long:
            self.too_long.append(f"{report.duration:.0f} s: {report.nodeid}")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        """Measure the set-up of a fixture, without the fixtures that it requests."""
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
        """Send a worker's fixture durations to the controller; in the controller, fail if a test took too long."""
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["fixtures"] = dict(self.fixtures)
        elif self.too_long and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add a worker's fixture durations; a worker that died has sent none."""
        for name, times in getattr(node, "workeroutput", {}).get("fixtures", {}).items():
            self.fixtures[name] += times

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the tables of files and of fixtures, slowest first."""
        write = terminalreporter.write_line
        files = sorted(self.files.items(), key=lambda item: -item[1].seconds)
        write(f"seconds per file ({sum(times.seconds for _, times in files):.0f} in all): total, set-up, calls, tests")
        for name, times in files[:MAX_FILES]:
            write(
                f"{times.seconds:7.1f} {times.phases['setup']:7.1f} {times.phases['call']:7.1f} {times.tests:5d}  {name}"
            )
        for test in self.too_long:
            write(f"a quick test over {MAX_SECONDS:.0f} s (mark it thorough, or long with a reason): {test}", red=True)
        fixtures = sorted(self.fixtures.items(), key=lambda item: -sum(item[1]))
        write("seconds per fixture, without the fixtures that it requests: total, set-ups")
        for name, durations in fixtures[:MAX_FIXTURES]:
            write(f"{sum(durations):7.1f} {len(durations):5d}  {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in every process of the run."""
    config.pluginmanager.register(Durations(config))
