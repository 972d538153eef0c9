"""Which queries would raise other errors with shared parts, from tables: places are written ``expression < conditions``."""

from __future__ import annotations

import pytest

from penstock.planner.shared_errors import with_other_errors
from penstock.spark.error_sites import ErrorSite


def sites(text: str) -> frozenset[ErrorSite]:
    """Return places: ``x<ab y<`` is x behind the conditions a and b, and y behind none."""
    pairs = (one.split("<") for one in text.split())
    return frozenset(ErrorSite(expression, frozenset(behind)) for expression, behind in pairs)


# places of each query alone, with shared parts, the queries with other errors
CASES: dict[str, tuple[list[str], list[str], set[int]]] = {
    "none": (["", ""], ["", ""], set()),
    "the same": (["x<a", "x<b"], ["x<a", "x<b"], set()),
    "a filter stays above what may fail": (["x<a", "x<a"], ["x<", "x<"], {0, 1}),
    "as another query has none there": (["x<a", "x<"], ["x<", "x<"], set()),
    "what may fail comes later": (["x<", "x<"], ["x<a", "x<a"], {0, 1}),
    "in one of them": (["x<", "y<"], ["x<a", "y<"], {0}),
    "another expression": (["x<"], ["y<"], {0}),
    "other conditions": (["x<a"], ["x<b"], {0}),
    "one of several places": (["x< y<a", "z<"], ["x< y<", "z<"], {0}),
    "between those of others": (["x<a", "x<abc"], ["x<ab", "x<ab"], {0}),
}


@pytest.mark.parametrize("name", CASES)
def test_with_other_errors(name: str) -> None:
    alone, shared, expected = CASES[name]
    assert with_other_errors(dict(enumerate(map(sites, alone))), dict(enumerate(map(sites, shared)))) == expected
