"""Completion of words in statements: keywords, tables, columns, and the commands of the shell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WORDS = """
    ALL ALTER ANALYZE AND ANTI ARRAY AS ASC BETWEEN BY CACHE CASE CAST COLUMN COLUMNS CREATE CROSS CUBE CURRENT
    DATABASE DATE DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN EXTENDED FALSE FIRST FROM
    FULL FUNCTIONS GROUP GROUPING HAVING IF IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LAST LATERAL LEFT
    LIKE LIMIT LOCATION MERGE NOT NULL NULLS OFFSET ON OPTIONS OR ORDER OUTER OVER OVERWRITE PARTITION
    PARTITIONED PIVOT QUALIFY REFRESH REPLACE RIGHT ROLLUP ROW ROWS SCHEMA SELECT SEMI SET SETS SHOW SORT STRUCT
    TABLE TABLES TABLESAMPLE TBLPROPERTIES TEMPORARY THEN TIMESTAMP TO TRUE TRUNCATE UNCACHE UNION UNPIVOT
    UPDATE USE USING VALUES VIEW WHEN WHERE WINDOW WITH
"""
KEYWORDS = tuple(_WORDS.split())
_BEFORE_TABLE = re.compile(r"\b(from|join|into|table|overwrite|describe|refresh|update)\s+$", re.IGNORECASE)
_TABLES = re.compile(r"\b(?:from|join|into|update)\s+([\w.`]+)", re.IGNORECASE)

_MAX_TABLES = 20
"""The most tables whose columns are offered if the statement does not name a table yet."""


class Names(Protocol):
    """The tables and columns of a session."""

    def tables(self) -> Sequence[str]:
        """Return the names of tables and views."""

    def columns(self, table: str) -> Sequence[str]:
        """Return the columns of a table; empty if there is no such table."""


def completions(before: str, word: str, after: str, names: Names, commands: Iterable[str]) -> list[str]:
    """Return the completions of a word.

    Parameters
    ----------
    before
        The statement up to the word.
    word
        The beginning of the word.
    after
        The statement after the word, as the tables of a query follow its columns.
    names
        The tables and columns of the session.
    commands
        The commands of the shell, such as ``\\help``.
    """
    if word.startswith("\\"):
        return [command for command in commands if command.startswith(word)]
    if _BEFORE_TABLE.search(before):
        return _beginning(names.tables(), word)
    if "." in word:
        table, _, start = word.rpartition(".")
        return [f"{table}.{column}" for column in _beginning(names.columns(table), start)]
    named = _TABLES.findall(f"{before} {after}")
    tables = dict.fromkeys(table.replace("`", "") for table in named) or names.tables()[:_MAX_TABLES]
    columns = [column for table in tables for column in _beginning(names.columns(table), word)]
    keywords = _beginning(KEYWORDS, word)
    if word and word == word.lower():
        keywords = [keyword.lower() for keyword in keywords]
    return list(dict.fromkeys([*columns, *_beginning(names.tables(), word), *keywords]))


def _beginning(candidates: Iterable[str], start: str) -> list[str]:
    return sorted(candidate for candidate in candidates if candidate.lower().startswith(start.lower()))
