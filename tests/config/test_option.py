from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import OPTIONS, parse_duration, parse_size
from penstock.config.options import BROADCAST_JOIN_STRATEGY, DATA_VOLUME_PER_TASK, MAX_PARALLELISM, SKEWED_FACTOR
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16 mb", 16 << 20),
        ("16mb", 16 << 20),
        ("1g", 1 << 30),
        ("0.5 kib", 512),
        ("7", 7),
        (7, 7),
        ("3 bytes", 3),
        ("-1", -1),
    ],
)
def test_sizes(text: str | int, size: Any) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "mb", "16 parsecs", "1,5 mb", "-2"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_size(text)


@given(st.integers(0, 1 << 50))
def test_plain_numbers_are_bytes(size: Any) -> None:
    assert parse_size(str(size)) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("30 s", 30), ("3 min", 180), ("250", 0.25), ("2 h", 7200), ("1ms", 0.001)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("option", "value", "parsed"),
    [
        (MAX_PARALLELISM, "12", 12),
        (MAX_PARALLELISM, 12.0, 12),
        (DATA_VOLUME_PER_TASK, "1 mb", 1 << 20),
        (BROADCAST_JOIN_STRATEGY, "none", "NONE"),
        (SKEWED_FACTOR, "2.5", 2.5),
    ],
)
def test_values(option: Any, value: str | float, parsed: Any) -> None:
    assert option.parse(value, "here") == parsed


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (MAX_PARALLELISM, 0),
        (MAX_PARALLELISM, "abc"),
        (MAX_PARALLELISM, 1.5),
        (MAX_PARALLELISM, True),
        (DATA_VOLUME_PER_TASK, "16 parsecs"),
        (BROADCAST_JOIN_STRATEGY, "SOMETIMES"),
        (SKEWED_FACTOR, "nan"),
    ],
)
def test_errors_name_key_value_and_origin(option: Any, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        option.parse(value, "the file x.toml")
    text = str(caught.value)
    assert option.key in text
    assert repr(value) in text
    assert "the file x.toml" in text
    assert option.expected in text


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.key)
def test_every_default_is_allowed(option: Any) -> None:
    if option.default is not None:
        assert option.parse(option.default, "default") == option.default
    assert option.doc.endswith(".")
