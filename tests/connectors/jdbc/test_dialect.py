"""What is asked of a database."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.jdbc.dialect import Request, literal
from penstock.connectors.jdbc.source import dialect_of, masked


def request(table: Any, columns: Any = ("a",), conditions: Any = ()) -> Any:
    return Request(table, columns, conditions, lambda name: f'"{name}"')


@pytest.mark.parametrize("name", ["t", "s.t", '"Odd Name"', 's."a""b"', "`x y`.t", "ünder_score", "t$1"])
def test_names(name: str) -> None:
    assert request(name).is_table


@pytest.mark.parametrize(
    "text", ["(select 1) q", "t as x", "t x", "only t", "t;", "1t", "a join b on true", '"open', ""]
)
def test_other_things(text: str) -> None:
    assert not request(text).is_table


def test_the_statement_that_reads_it_in_one_piece() -> None:
    assert request("t", ("a", "b"), ("a > 1", "b = 2")).statement == 'SELECT "a", "b" FROM t WHERE (a > 1) AND (b = 2)'
    assert request("t", ()).statement == "SELECT 1 FROM t"


def test_literals() -> None:
    assert literal("it's") == "'it''s'"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("jdbc:postgresql://h/d", "PostgreSQL"),
        ("jdbc:mysql://h/d", "MySQL"),
        ("jdbc:sqlite:f", "SQLite"),
        ("jdbc:oracle:x", None),
    ],
)
def test_dialects(url: str, name: str | None) -> None:
    found = dialect_of(url)
    assert (found.name if found else None) == name


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h/d?user=u&password=p&ssl=true", "jdbc:postgresql://h/d?user=u&password=***&ssl=true"),
        ("jdbc:mysql://u:p@h/d", "jdbc:mysql://u:***@h/d"),
        ("jdbc:postgresql://h:5432/d", "jdbc:postgresql://h:5432/d"),
    ],
)
def test_secrets_in_urls(url: str, shown: str) -> None:
    assert masked(url) == shown


WAITS = {
    "jdbc:postgresql://h/d": ({"connectTimeout": "2", "loginTimeout": "2"}, {"socketTimeout": "2"}),
    "jdbc:mysql://h/d": ({"connectTimeout": "1500"}, {"socketTimeout": "1500"}),
    "jdbc:sqlite:f": ({}, {}),
}


@pytest.mark.parametrize("url", WAITS)
def test_how_long_drivers_wait(url: str) -> None:
    """Connections to read by give up connecting only: a query may take as long as it likes to its first row."""
    connecting, answering = WAITS[url]
    assert dialect_of(url).waits(1.5) == connecting
    assert dialect_of(url).asking_waits(1.5) == connecting | answering
