"""Names of jobs of queries."""

from __future__ import annotations

import pytest

from penstock.base.masking import MASK
from penstock.scheduler.origin import QueryOrigin

SQL = "SELECT a\n  FROM t"
LINE = "collect at job.py:3"
CONNECT = "Spark Connect - session_id: 7"


@pytest.mark.parametrize(
    ("text", "line", "description", "name"),
    [
        (SQL, LINE, "mine", "mine"),
        (SQL, LINE, None, "SELECT a FROM t"),
        (SQL, CONNECT, CONNECT, "SELECT a FROM t"),
        ('/* {"app": "dbt", "node_id": "model.shop.t"} */\n' + SQL, LINE, None, "SELECT a FROM t"),
        ("-- a report\n\n/* of\nt */ -- again\n" + SQL, LINE, None, "SELECT a FROM t"),
        ("SELECT /* all */ a -- b", LINE, None, "SELECT /* all */ a -- b"),
        (None, LINE, None, LINE),
        (None, LINE, "mine", "mine"),
        (None, CONNECT, None, "query"),
        (None, None, None, "query"),
        ("SELECT " + "a, " * 100, None, None, "SELECT " + ("a, " * 37) + "a, …"),
        ("SELECT " + "a," * 100, None, None, "SELECT " + ("a," * 100)[:113] + " …"),
        ("a" * 119 + " b", None, None, "a" * 119 + " …"),
        ("a" * 120 + " b", None, None, "a" * 120 + " …"),
        ("SELECT * FROM t WHERE token = 'x'", LINE, None, f"SELECT * FROM t WHERE token = '{MASK}'"),
    ],
)
def test_names(text: str | None, line: str | None, description: str | None, name: str) -> None:
    origin = QueryOrigin.of(text, line, description)
    assert origin.name == name
    assert origin.line == (None if line == CONNECT else line)


@pytest.mark.parametrize(("letters", "length"), [(8000, 8000), (8001, 8002), (10**6, 8002)])
def test_long_statements_are_cut(letters: int, length: int) -> None:
    statement = QueryOrigin.of("a" * letters, None, None).statement
    assert statement is not None
    assert len(statement) == length


def test_a_secret_after_a_long_secret_is_masked() -> None:
    """The mask is shorter than the secret, so text moves forward; a cut before masking would halve the second secret."""
    sql = f"SELECT '{'a' * 3000}' WHERE token = '{'x' * 12_900}' AND url = 'jdbc:postgresql://me:hunter2@db/shop'"
    for length in range(len(sql) - 60, len(sql)):
        statement = QueryOrigin.of(" " * (16_000 - length) + sql, None, None).statement
        assert statement is not None
        assert "hun" not in statement
