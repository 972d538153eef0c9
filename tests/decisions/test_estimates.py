"""Estimates against actual values: when an estimate is a miss, and its text."""

from __future__ import annotations

import pytest

from penstock.decisions.estimates import Estimate, Unit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("unit", "estimated", "actual", "factor"),
    [
        (Unit.BYTES, 133.6 * MIB, 3.6 * MIB, 37),
        (Unit.BYTES, 8 * MIB, 16 * MIB, 2.0),
        (Unit.BYTES, 8 * MIB, 15 * MIB, None),  # a factor below two is not a miss
        (Unit.BYTES, 8 * MIB, 4.1 * MIB, None),
        (Unit.BYTES, 1 * MIB, 300, None),  # both fit one task
        (Unit.BYTES, 90 * MIB, 0, 94371840),
        (Unit.BYTES, 90 * MIB, None, None),  # unknown
        (Unit.ROWS, 100, 900, None),
        (Unit.ROWS, 100, 9000, 90),
        (Unit.FRACTION, 0.04, 0.5, 12),
        (Unit.FRACTION, 0.01, 0.04, None),
        (Unit.FRACTION, 0.2, 0.0, 200),
    ],
)
def test_a_large_deviation_is_a_miss(unit: Unit, estimated: float, actual: float | None, factor: float | None) -> None:
    assert Estimate("x", unit, estimated, actual).missed_by == factor


def test_an_upper_bound_is_missed_only_by_larger_values() -> None:
    bound = Estimate("x", Unit.BYTES, 90 * MIB, is_most=True)
    assert bound.with_actual(MIB).missed_by is None
    assert bound.with_actual(180 * MIB).missed_by == 2.0
    assert str(bound) == "at most 90.0 MiB estimated"


@pytest.mark.parametrize(
    ("actual", "factor"),
    [
        (9 * MIB, None),
        (11 * MIB, 1.4),  # the decision would have been different
        (5 * MIB, None),
        (4 * MIB, 2.0),
    ],
)
def test_an_actual_value_on_the_other_side_of_a_limit_is_a_miss(actual: float, factor: float | None) -> None:
    assert Estimate("x", Unit.BYTES, 8 * MIB, actual, limit=10 * MIB).missed_by == factor


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate("x", Unit.BYTES, 90 * MIB), "90.0 MiB estimated"),
        (Estimate("x", Unit.BYTES, 90 * MIB, 80 * MIB), "90.0 MiB estimated, 80.0 MiB actual"),
        (
            Estimate("x", Unit.BYTES, 133.6 * MIB, 3.6 * MIB),
            "133.6 MiB estimated, 3.6 MiB actual (missed: 37 times less)",
        ),
        (Estimate("x", Unit.ROWS, 2000, 5000), "2,000 rows estimated, 5,000 rows actual (missed: 2.5 times more)"),
        (Estimate("x", Unit.FRACTION, 0.2, 0.0), "20.0% estimated, 0.0% actual (missed)"),
    ],
)
def test_an_estimate_has_a_text(estimate: Estimate, text: str) -> None:
    assert str(estimate) == text
    assert estimate.as_dict()["text"] == text
