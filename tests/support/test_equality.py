from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.support.equality import assert_same_rows


@pytest.mark.parametrize(
    ("actual", "expected", "equal"),
    [
        ([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], True),
        ([(1,), (1,)], [(1,)], False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False),
        ([(1.0,)], [(1.0 + 1e-12,)], True),
        ([(1.0,)], [(1.0 + 1e-6,)], False),
        ([(float("nan"),)], [(float("nan"),)], True),
        ([(Decimal("1.10"),)], [(Decimal("1.1"),)], False),
        ([(None,)], [(0,)], False),
        ([([1, 2],)], [([1, 2],)], True),
        ([({"a": 1},)], [({"a": 2},)], False),
    ],
)
def test_rows_are_compared_as_multisets(actual: Any, expected: Any, equal: bool) -> None:
    if equal:
        assert_same_rows(actual, expected)
    else:
        with pytest.raises(AssertionError):
            assert_same_rows(actual, expected)
