"""The report of test durations, and the limit for quick tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TESTS = """
import time, pytest

@pytest.fixture
def slept():
    time.sleep(0.2)

@pytest.mark.parametrize("n", [1, 2])
def test_fixture(slept, n): pass

{mark}
def test_long(): time.sleep(0.4)
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(
    ("selected", "mark", "status"),
    [
        ("not slow and not thorough", "", 1),
        ("not slow and not thorough", "@pytest.mark.long('it waits')", 0),
        ("not slow", "", 0),
    ],
)
def test_durations_are_reported_and_long_quick_tests_fail_the_run(
    tmp_path: Path, workers: str, selected: str, mark: str, status: int
) -> None:
    (tmp_path / "test_a.py").write_text(TESTS.format(mark=mark))
    (tmp_path / "limited.py").write_text(
        "from tests.support import durations\ndurations.MAX_SECONDS = 0.3\nfrom tests.support.durations import *"
    )
    options = ["-p", "limited", "-p", "no:cacheprovider", "-n", workers, "-m", selected]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    assert done.returncode == status, done.stdout
    assert ("a quick test over 0 s" in done.stdout) == bool(status)
    (line,) = [line for line in done.stdout.splitlines() if line.endswith("test_a.py")]
    total, set_up, calls, tests, _ = line.split()
    assert (float(set_up), float(calls), int(tests)) == (pytest.approx(0.4, abs=0.2), pytest.approx(0.4, abs=0.2), 3)
    assert float(total) >= 0.8
    assert re.search(r"0\.\d     2  slept", done.stdout)
