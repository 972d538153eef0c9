"""Which tests `make test` runs, and `make check` of those that a change affects: the quick set.

A test is in it unless it is marked ``thorough`` (`make test-thorough` runs it) or ``slow`` (`make test-full` runs it).
Of the unmarked cases of one parametrised test that needs the Spark session, all but `SAMPLE` are marked ``thorough`` here;
``@pytest.mark.sample(n)`` gives another number, also to tests without that session. A hash of a case's name chooses: a
new case leaves the others in or out as they were. Cases that the page of the designs names are quick, too. Tests that
run ``alone`` are ``thorough``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

DESIGNS = Path(__file__).parent.parent / "docs" / "reference" / "designs.md"
SAMPLE = 1
"""Cases of a test with the Spark session in the quick set; each takes about a second."""


def mark_thorough(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that are not in the sample of their test."""
    named = set(re.findall(r"`(tests/[^`]+\[[^`]+\])`", DESIGNS.read_text()))
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("alone") is not None:
            item.add_marker("thorough")  # nothing runs beside it, which costs more than it takes itself
        elif _sample(item) is not None and not any(map(item.get_closest_marker, ("slow", "thorough"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        for item in sorted(cases, key=_draw)[_sample(cases[0]) :]:
            if item.nodeid not in named:
                item.add_marker("thorough")


def _sample(item: pytest.Item) -> int | None:
    """Return how many cases of a test are in the quick set; None if all are."""
    marker = item.get_closest_marker("sample")
    if marker is not None:
        return int(marker.args[0])
    return SAMPLE if "spark" in getattr(item, "fixturenames", ()) else None


def _draw(item: pytest.Item) -> int:
    return crc32(item.nodeid.encode())
