"""Key groups of keys, and bounds of their number."""

from __future__ import annotations

import pytest

from penstock.base.hashing import hash_row
from penstock.errors import StateError
from penstock.state.key_groups import check_max_parallelism, default_max_parallelism, key_group


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (171, 256), (172, 512), (20_000, 32768), (32768, 32768)],
)
def test_default_max_parallelism(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize("number", [0, -1, 32769])
def test_bounds(number: int) -> None:
    with pytest.raises(StateError, match=f"max parallelism is {number}"):
        check_max_parallelism(number)


def test_a_key_group_is_the_hash_modulo_their_number() -> None:
    assert key_group(["k", 7], ["string", "bigint"], 12) == hash_row(["k", 7], ["string", "bigint"]) % 12
