from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.backslash import completions

COMMANDS = ("\\explain", "\\help", "\\jobs")


class Names:
    """Two tables."""

    def tables(self) -> Any:
        return ("orders", "customer")

    def columns(self, table: str) -> Any:
        return {"orders": ("o_key", "o_date"), "customer": ("c_key", "c_name")}.get(table, ())


CASES = [
    # before, word, after, completions
    ("", "sel", "", ["select"]),
    ("", "SEL", "", ["SELECT"]),
    ("", "\\", "", ["\\explain", "\\help", "\\jobs"]),
    ("", "\\e", "", ["\\explain"]),
    ("select * from ", "", "", ["customer", "orders"]),
    ("select * from orders join ", "c", "", ["customer"]),
    ("insert into ", "o", "", ["orders"]),
    ("select ", "o_", " from orders", ["o_date", "o_key"]),
    ("select ", "c_", " from orders", []),
    ("select ", "c_n", "", ["c_name"]),
    ("select ", "O_K", " from orders", ["o_key"]),
    ("select ", "orders.o_k", "", ["orders.o_key"]),
    ("select ", "nothing.x", "", []),
    ("select * from `orders` where ", "o_k", "", ["o_key"]),
    (
        "select * from orders ",
        "o",
        "",
        ["o_date", "o_key", "orders", "offset", "on", "options", "or", "order", "outer", "over", "overwrite"],
    ),
    ("select * from nowhere where ", "xyz", "", []),
]


@pytest.mark.parametrize(("before", "word", "after", "expected"), CASES)
def test_completions(before: Any, word: Any, after: Any, expected: Any) -> None:
    assert completions(before, word, after, Names(), COMMANDS) == expected
