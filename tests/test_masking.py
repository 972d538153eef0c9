"""Secrets become unreadable, and nothing else does."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.masking import MASK, mask, mask_value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jdbc:postgresql://me:hunter2@db:5432/shop", f"jdbc:postgresql://me:{MASK}@db:5432/shop"),
        (
            "jdbc:postgresql://db/shop?user=me&password=hunter2&ssl=true",
            f"jdbc:postgresql://db/shop?user=me&password={MASK}&ssl=true",
        ),
        ("sasl.password = 'hunter2', acks=1", f"sasl.password = '{MASK}', acks=1"),
        ('{"secret": "hunter2", "n": 1}', f'{{"secret": "{MASK}", "n": 1}}'),
        ("fs.s3a.access_key=AKIA123;x=1", f"fs.s3a.access_key={MASK};x=1"),
        ("HASH(customer#12), 4 tokens of words", "HASH(customer#12), 4 tokens of words"),
        ("join on pass_id = id", "join on pass_id = id"),
    ],
)
def test_texts(text: str, expected: str) -> None:
    assert mask(text) == expected
    assert "hunter2" not in mask(text)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("rest.token", "abc", MASK),
        ("db.password", "hunter2", MASK),
        ("fs.s3a.secret.key", "x", MASK),
        ("scan.parallelism", 4, "4"),
        ("url", "http://a:b@c", f"http://a:{MASK}@c"),
    ],
)
def test_values(key: str, value: str | int, expected: Any) -> None:
    assert mask_value(key, value) == expected
