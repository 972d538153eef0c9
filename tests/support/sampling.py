"""Selection of the quick set of tests, which `make test` and `make check` run.

It contains all tests that are not marked ``thorough`` (`make test-thorough`) or ``slow`` (`make test-full`). In a
parametrized test with the Spark session, all unmarked cases except `SAMPLE` become ``thorough``; ``@pytest.mark.sample(n)``
sets another number of quick cases, also for tests without the session. Of the remaining unmarked tests with the session, a
file has at most `FILE_SAMPLE` in the quick set. A hash of the name selects tests and cases, so that a new one changes the selection
of few others. Tests marked ``alone`` become ``thorough``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    import pytest

SAMPLE = 1
"""Number of quick cases of a test with the Spark session; each takes about a second."""
FILE_SAMPLE = 4
"""Number of quick tests of a file with the Spark session: with more, two cores need longer than 8 minutes for all files."""


def mark_thorough(items: Iterable[pytest.Item]) -> None:
    """Mark the cases outside the sample of their test as thorough."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("alone") is not None:
            item.add_marker("thorough")  # running no other test meanwhile costs more than the test itself
        elif _quick_cases(item) is not None and not any(map(item.get_closest_marker, ("slow", "thorough"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        for item in sorted(cases, key=_name_hash)[_quick_cases(cases[0]) :]:
            item.add_marker("thorough")
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _uses_spark(item) and not any(map(item.get_closest_marker, ("slow", "thorough", "sample"))):
            files[item.nodeid.partition("::")[0]].append(item)
    for tests_of_file in files.values():
        for item in sorted(tests_of_file, key=_name_hash)[FILE_SAMPLE:]:
            item.add_marker("thorough")


def _uses_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


def _quick_cases(item: pytest.Item) -> int | None:
    """Return the number of cases of a test in the quick set, or None for all."""
    marker = item.get_closest_marker("sample")
    if marker is not None:
        return int(marker.args[0])
    return SAMPLE if _uses_spark(item) else None


def _name_hash(item: pytest.Item) -> int:
    return crc32(item.nodeid.encode())
