"""What was foreseen against what came: when it is a miss, and how people read it."""

from __future__ import annotations

import pytest

from penstock.estimates import Estimate, Unit

MIB = 1 << 20


@pytest.mark.parametrize(
    ("unit", "foreseen", "came", "factor"),
    [
        (Unit.BYTES, 133.6 * MIB, 3.6 * MIB, 37),
        (Unit.BYTES, 8 * MIB, 16 * MIB, 2.0),
        (Unit.BYTES, 8 * MIB, 15 * MIB, None),  # less than a factor of two decides nothing
        (Unit.BYTES, 8 * MIB, 4.1 * MIB, None),
        (Unit.BYTES, 1 * MIB, 300, None),  # all of it fits one task
        (Unit.BYTES, 90 * MIB, 0, 94371840),
        (Unit.BYTES, 90 * MIB, None, None),  # nobody knows
        (Unit.ROWS, 100, 900, None),
        (Unit.ROWS, 100, 9000, 90),
        (Unit.FRACTION, 0.04, 0.5, 12),
        (Unit.FRACTION, 0.01, 0.04, None),
        (Unit.FRACTION, 0.2, 0.0, 200),
    ],
)
def test_misses(unit: Unit, foreseen: float, came: float | None, factor: float | None) -> None:
    assert Estimate("x", unit, foreseen, came).missed_by == factor


def test_an_upper_bound_is_missed_from_above_only() -> None:
    most = Estimate("x", Unit.BYTES, 90 * MIB, is_most=True)
    assert most.settled(MIB).missed_by is None
    assert most.settled(180 * MIB).missed_by == 2.0
    assert str(most) == "at most 90.0 MiB foreseen"


@pytest.mark.parametrize(
    ("came", "factor"),
    [
        (9 * MIB, None),
        (11 * MIB, 1.4),  # it would have been decided otherwise
        (5 * MIB, None),
        (4 * MIB, 2.0),
    ],
)
def test_what_comes_on_the_other_side_of_a_limit_is_a_miss(came: float, factor: float | None) -> None:
    assert Estimate("x", Unit.BYTES, 8 * MIB, came, limit=10 * MIB).missed_by == factor


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate("x", Unit.BYTES, 90 * MIB), "90.0 MiB foreseen"),
        (Estimate("x", Unit.BYTES, 90 * MIB, 80 * MIB), "90.0 MiB foreseen, 80.0 MiB came"),
        (Estimate("x", Unit.BYTES, 133.6 * MIB, 3.6 * MIB), "133.6 MiB foreseen, 3.6 MiB came (missed: 37 times less)"),
        (Estimate("x", Unit.ROWS, 2000, 5000), "2,000 rows foreseen, 5,000 rows came (missed: 2.5 times more)"),
        (Estimate("x", Unit.FRACTION, 0.2, 0.0), "20.0% foreseen, 0.0% came (missed)"),
    ],
)
def test_what_people_read(estimate: Estimate, text: str) -> None:
    assert str(estimate) == text
    assert estimate.as_dict()["text"] == text
