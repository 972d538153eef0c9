"""The selection of the quick set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.sampling import FILE_SAMPLE, SAMPLE, mark_thorough


@dataclass
class Item:
    """A stand-in for a collected test."""

    nodeid: str
    fixturenames: tuple[str, ...] = ()
    markers: dict[str, Any] = field(default_factory=dict)

    def get_closest_marker(self, name: str) -> Any:
        return self.markers.get(name)

    def add_marker(self, name: str) -> None:
        self.markers[name] = True


def quick(items: list[Item]) -> list[str]:
    """Return the tests in the quick set."""
    mark_thorough(items)  # type: ignore[arg-type]
    return [item.nodeid for item in items if "thorough" not in item.markers]


def cases(test: str, count: int, *fixtures: str, **markers: Any) -> list[Item]:
    return [Item(f"{test}[{number}]", fixtures, dict(markers)) for number in range(count)]


@pytest.mark.parametrize(
    ("items", "count"),
    [
        (cases("without Spark", 50), 50),
        (cases("of Spark", 50, "spark"), SAMPLE),
        (cases("a single case of Spark", SAMPLE, "spark"), SAMPLE),
        (cases("of Spark, all slow", 50, "spark", slow=True), 50),
        (cases("of Spark", 2, "spark", thorough=True) + cases("of Spark", 1, "spark"), SAMPLE),
        (cases("processes", 50, sample=pytest.mark.sample(3).mark), 3),
        (cases("of Spark, more", 50, "spark", sample=pytest.mark.sample(20).mark), 20),
        (cases("running alone", 3, alone=True), 0),
        (cases("first", 9, "spark") + cases("second", 9, "spark"), 2 * SAMPLE),
        ([Item(f"a file::test {number}", ("spark",)) for number in range(20)], FILE_SAMPLE),
        ([Item(f"a file without Spark::test {number}") for number in range(20)], 20),
    ],
    ids=lambda value: value[0].nodeid if isinstance(value, list) else "",
)
def test_the_quick_set_has_a_sample_of_the_cases_with_spark(items: list[Item], count: int) -> None:
    assert len(quick(items)) == count


def test_a_new_case_replaces_at_most_a_single_case() -> None:
    before = quick(cases("t", 30, "spark"))
    after = quick(cases("t", 31, "spark"))
    assert len({*before} - {*after}) <= 1
    assert before != [f"t[{number}]" for number in range(SAMPLE)], "the first cases are often similar"
