"""SQL dialects of databases: names, literals, URLs and timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.jdbc.dialect import ReadRequest, literal
from penstock.connectors.jdbc.source import dialect_of, masked


def request(table: Any, columns: Any = ("a",), conditions: Any = ()) -> Any:
    return ReadRequest(table, columns, conditions, lambda name: f'"{name}"')


@pytest.mark.parametrize("name", ["t", "s.t", '"Odd Name"', 's."a""b"', "`x y`.t", "ünder_score", "t$1"])
def test_table_names_are_recognised(name: str) -> None:
    assert request(name).is_table


@pytest.mark.parametrize(
    "text", ["(select 1) q", "t as x", "t x", "only t", "t;", "1t", "a join b on true", '"open', ""]
)
def test_queries_and_malformed_names_are_not_table_names(text: str) -> None:
    assert not request(text).is_table


def test_the_statement_of_a_single_split() -> None:
    assert request("t", ("a", "b"), ("a > 1", "b = 2")).statement == 'SELECT "a", "b" FROM t WHERE (a > 1) AND (b = 2)'
    assert request("t", ()).statement == "SELECT 1 FROM t"


def test_quotes_in_literals_are_doubled() -> None:
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
def test_the_dialect_is_chosen_by_the_url(url: str, name: str | None) -> None:
    dialect = dialect_of(url)
    assert (dialect.name if dialect else None) == name


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h/d?user=u&password=p&ssl=true", "jdbc:postgresql://h/d?user=u&password=***&ssl=true"),
        ("jdbc:mysql://u:p@h/d", "jdbc:mysql://u:***@h/d"),
        ("jdbc:postgresql://h:5432/d", "jdbc:postgresql://h:5432/d"),
    ],
)
def test_passwords_in_urls_are_masked(url: str, expected: str) -> None:
    assert masked(url) == expected


WAITS = {
    "jdbc:postgresql://h/d": ({"connectTimeout": "2", "loginTimeout": "2"}, {"socketTimeout": "2"}),
    "jdbc:mysql://h/d": ({"connectTimeout": "1500"}, {"socketTimeout": "1500"}),
    "jdbc:sqlite:f": ({}, {}),
}


@pytest.mark.parametrize("url", WAITS)
def test_timeouts_are_passed_in_the_units_of_the_driver(url: str) -> None:
    """Connections for reading have only a connect timeout, because a query may take long to its first row."""
    connect_options, query_options = WAITS[url]
    assert dialect_of(url).connect_timeouts(1.5) == connect_options
    assert dialect_of(url).query_timeouts(1.5) == connect_options | query_options
