"""Selection of the quick set of tests, which `make test` and `make check` run.

It contains all tests that are not marked ``thorough`` (`make test-thorough`) or ``slow`` (`make test-full`). In a
parametrised test with the Spark session, all unmarked cases but `SAMPLE` become ``thorough``; ``@pytest.mark.sample(n)`` sets
another number, also for other tests. A hash of the name selects the cases, so that a new case does not change the
selection of the others. Cases cited in the table of the designs stay quick. Tests marked ``alone`` become ``thorough``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING
from zlib import crc32

from tests.support.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

DESIGNS = ROOT / "docs" / "reference" / "designs.md"
SAMPLE = 1
"""Cases of a test with the Spark session in the quick set; each takes about a second."""


def mark_thorough(items: Iterable[pytest.Item]) -> None:
    """Mark the cases outside the sample of their test."""
    cited = set(re.findall(r"`(tests/[^`]+\[[^`]+\])`", DESIGNS.read_text()))
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("alone") is not None:
            item.add_marker("thorough")  # running nothing in parallel costs more than the test itself
        elif _sample(item) is not None and not any(map(item.get_closest_marker, ("slow", "thorough"))):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        for item in sorted(cases, key=_draw)[_sample(cases[0]) :]:
            if item.nodeid not in cited:
                item.add_marker("thorough")


def _sample(item: pytest.Item) -> int | None:
    """Return the number of cases of a test in the quick set, or None for all."""
    marker = item.get_closest_marker("sample")
    if marker is not None:
        return int(marker.args[0])
    return SAMPLE if "spark" in getattr(item, "fixturenames", ()) else None


def _draw(item: pytest.Item) -> int:
    return crc32(item.nodeid.encode())
