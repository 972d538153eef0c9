"""Test runs start no tests after their deadline, and vary the order of files."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from time import time

import pytest

from tests.support.deadline import SECONDS_PER_DAY, Deadline
from tests.support.paths import ROOT

DEADLINE = time() + SECONDS_PER_DAY
TESTS = """
from tests.support import deadline

{first}
def test_before(): pass
def test_during_which_the_time_passes(): deadline.time = lambda: {now}
def test_after(): pass
def test_last(): pass
"""


@pytest.mark.parametrize("workers", ["0", pytest.param("1", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("first", "now", "passed", "skipped"),
    [
        ("", DEADLINE - 1, "4 passed", ""),
        ("", DEADLINE + 1, "2 passed", "2 of 4 tests were skipped after the deadline: make test-full runs all"),
        (f"deadline.time = lambda: {DEADLINE + 1}", 0, "no tests ran", "4 of 4 tests were skipped after the deadline"),
    ],
    ids=["within the deadline", "deadline during the run", "deadline before the run"],
)
def test_no_test_starts_after_the_deadline(
    tmp_path: Path, workers: str, first: str, now: float, passed: str, skipped: str
) -> None:
    (tmp_path / "test_a.py").write_text(TESTS.format(first=first, now=now))
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.deadline", "-p", "no:cacheprovider", "-n", workers]
    env = os.environ | {"PYTHONPATH": str(ROOT), "TEST_END": str(DEADLINE)}
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout
    assert passed in done.stdout
    assert skipped in done.stdout
    assert ("skipped" in done.stdout) == bool(skipped)


@dataclass
class Item:
    """A stand-in for a collected test."""

    path: Path
    number: int
    forks: bool = False

    def get_closest_marker(self, name: str) -> bool | None:
        return self.forks or None if name == "forks" else None


def order(end: float) -> list[Item]:
    """Return the tests of ten files in their order of execution; each has three tests, and the file "g" forks."""
    items = [Item(Path(f"test_{letter}.py"), number, letter == "g") for letter in "abcdefghij" for number in range(3)]
    Deadline(end).pytest_collection_modifyitems(items)  # type: ignore[arg-type]
    return items


def test_the_order_of_files_changes_every_day_but_not_the_order_within_a_file() -> None:
    orders = [order(DEADLINE + days * SECONDS_PER_DAY) for days in range(3)]
    assert order(DEADLINE) == orders[0]
    assert len({tuple(item.path for item in items) for items in orders}) == 3
    for items in orders:
        assert items[0].path == Path("test_g.py")
        files = [[item.number for item in tests] for _, tests in groupby(items, lambda item: item.path)]
        assert files == [[0, 1, 2]] * 10
