from __future__ import annotations

from typing import Any

import pytest

from penstock.base.units import show_exact_bytes, show_exact_seconds, show_rows, show_time
from penstock.config import OPTIONS, parse_duration, parse_size

CASES = [
    (show_exact_bytes, 10 << 20, "10 MiB"),
    (show_exact_bytes, 10485761, "10,485,761 B"),
    (show_exact_bytes, 1536 << 10, "1,536 KiB"),
    (show_exact_bytes, 3 << 40, "3 TiB"),
    (show_exact_bytes, 0, "0 B"),
    (show_exact_seconds, 5.0, "5 s"),
    (show_exact_seconds, 60.0, "60 s"),
    (show_exact_seconds, 1800.0, "30 min"),
    (show_exact_seconds, 7200.0, "2 h"),
    (show_exact_seconds, 0.1, "0.1 s"),
    (show_time, 7.4, "0:07"),
    (show_time, 59.6, "1:00"),
    (show_time, 3727, "1:02:07"),
    (show_rows, 1, "1 row"),
    (show_rows, 812, "812 rows"),
    (show_rows, 12_340_000, "12.3 M rows"),
    (show_rows, 2_500_000_000, "2.5 G rows"),
]


@pytest.mark.parametrize(("show", "value", "expected"), CASES)
def test_values_are_formatted_with_units(show: Any, value: Any, expected: Any) -> None:
    assert show(value) == expected


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_a_formatted_default_can_be_parsed(option: Any) -> None:
    if option.default in (None, ()):
        assert option.format(option.default) == "none"
    else:
        assert option.parse(option.format(option.default), "a test") == option.default


def test_formatted_exact_values_can_be_parsed() -> None:
    assert parse_size("1536 KiB") == 1536 << 10
    assert parse_duration(show_exact_seconds(1800.0)) == 1800.0
