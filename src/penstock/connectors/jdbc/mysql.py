"""MySQL and MariaDB: ranges of the primary key, weighed by the optimiser's own estimates of ranges."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connectors.jdbc.dialect import (
    Database,
    JdbcDialect,
    KeyKind,
    Request,
    TableEstimate,
    UniqueKey,
    in_one_piece,
    literal,
    split_name,
)
from penstock.connectors.jdbc.keyspace import middle_number, middle_text, weigh
from penstock.connectors.jdbc.splits import key_conditions, weighted_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TABLE = """
SELECT table_schema, table_name, table_rows, avg_row_length FROM information_schema.tables
WHERE table_name = ? AND table_schema = coalesce(nullif(?, ''), database()) AND table_type = 'BASE TABLE'
"""
_LIKE = """
SELECT table_name FROM information_schema.tables
WHERE substr(table_name, 1, length(?)) = ? AND table_schema = coalesce(nullif(?, ''), database())
"""
_KEY = """
SELECT c.column_name, c.data_type, c.character_set_name, c.collation_name
FROM information_schema.statistics s
JOIN information_schema.columns c USING (table_schema, table_name, column_name)
WHERE s.table_schema = ? AND s.table_name = ? AND s.index_name = 'PRIMARY' AND s.seq_in_index = 1
"""
_UNIQUE = """
SELECT s.index_name, lower(coalesce(s.column_name, '')), s.sub_part,
  coalesce(c.column_default, 'NULL') <> 'NULL' OR c.extra LIKE '%GENERATED%' OR c.generation_expression <> ''
  OR (c.is_nullable = 'NO' AND c.extra NOT LIKE '%auto_increment%' AND @@sql_mode NOT LIKE '%STRICT%')
FROM information_schema.statistics s
LEFT JOIN information_schema.columns c USING (table_schema, table_name, column_name)
WHERE s.table_name = ? AND s.table_schema = coalesce(nullif(?, ''), database()) AND s.non_unique = 0
"""
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"})
_TEXTS = frozenset({"char", "varchar"})
_PIECES_PER_SPLIT = 8
_ESTIMATES = ("rows", "rows_produced_per_join", "rows_examined_per_scan")


class MySqlDialect(JdbcDialect):
    """MySQL and MariaDB; for the latter write ``jdbc:mysql:`` too, as Spark's dialect goes by the URL."""

    name: ClassVar[str] = "MySQL"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:mysql:",)
    isolation: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    transactional: ClassVar[str] = "ENGINE=InnoDB"
    comparable: ClassVar[Mapping[str, KeyKind]] = {
        **{
            f"{name}{sign}": KeyKind.WHOLE
            for name in ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")
            for sign in ("", " unsigned")
        },
        "decimal": KeyKind.DECIMAL,
        **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), KeyKind.TEXT),
    }
    no_snapshot: ClassVar[str] = (
        "its transactions cannot share a snapshot, so rows written meanwhile may be seen or not"
    )

    def waits(self, seconds: float) -> dict[str, str]:
        """Bound the connection; the drivers want milliseconds."""
        return {"connectTimeout": str(round(1000 * seconds))}

    def asking_waits(self, seconds: float) -> dict[str, str]:
        """Bound every answer as well."""
        return self.waits(seconds) | {"socketTimeout": str(round(1000 * seconds))}

    def estimate(self, database: Database, request: Request) -> TableEstimate:
        """Ask the optimiser for rows, and the catalogue for their width and the key."""
        schema, _, table = request.table.replace("`", "").rpartition(".")
        found = database.rows(_TABLE, table, schema) if request.is_table else []
        rows = _estimate(database, request.statement)
        if not found:
            return TableEstimate(rows, 100.0, in_one_piece, "one piece, as it is not a table")
        of_schema, of_table, _, width = found[0]
        keys = database.rows(_KEY, str(of_schema), str(of_table))
        row_bytes = float(width or 100)
        if not keys:
            return TableEstimate(rows, row_bytes, in_one_piece, "one piece, as it has no primary key")
        ((name, data_type, charset, collation),) = keys
        if data_type not in _NUMBERS | _TEXTS:
            return TableEstimate(rows, row_bytes, in_one_piece, f"one piece, as its key {name} is of type {data_type}")
        key = request.quote(str(name))
        order = f"CONVERT({{}} USING {charset}) COLLATE {collation}" if data_type in _TEXTS else None
        cut = partial(_cut, request.table, key, order)
        return TableEstimate(rows, row_bytes, cut, f"ranges of its key {name}")

    def has_table(self, database: Database, table: str) -> bool:
        """Look the name up in the catalogue."""
        schema, _, name = table.replace("`", "").rpartition(".")
        return bool(database.rows(_TABLE, name, schema))

    def tables_like(self, database: Database, table: str) -> list[str]:
        """Look names up in the catalogue."""
        schema, name = split_name(table)
        found = database.rows(_LIKE, name, name, schema.replace("`", ""))
        return [f"{schema}.{one}" if schema else str(one) for (one,) in found]

    def upsert_keys(self, database: Database, table: str) -> list[UniqueKey]:
        """Return the unique indexes of a table: a row that is equal in any of them is replaced."""
        schema, _, name = table.replace("`", "").rpartition(".")
        found: dict[str | None, list[tuple[str | None, ...]]] = {}
        for index, *column in database.rows(_UNIQUE, name, schema):
            found.setdefault(index, []).append(tuple(column))
        return [
            UniqueKey(
                frozenset(str(name) for name, _, _ in columns),
                frozenset(str(name) for name, _, filled in columns if filled == "1" or not name),
                is_whole=all(name and length is None for name, length, _ in columns),
            )
            for columns in found.values()
        ]

    def replacing(self, key: Sequence[str], others: Sequence[str]) -> str:
        """Return the end of an INSERT whose rows replace those with the same key."""
        changes = ", ".join(f"{name} = VALUES({name})" for name in others or key)
        return f"ON DUPLICATE KEY UPDATE {changes}"

    def free_connections(self, database: Database) -> int | None:
        """Return what ``max_connections`` leaves."""
        ((most,),) = database.rows("SELECT @@max_connections")
        used = database.rows("SHOW STATUS LIKE 'Threads_connected'")
        return max(1, int(most or 1) - int(used[0][1] or 0))


def _cut(table: str, key: str, order: str | None, database: Database, count: int) -> list[str | None]:
    """Return conditions on a key; `order` makes a text one that is compared as the key's are, None for numbers."""
    ((low, high),) = database.rows(f"SELECT min({key}), max({key}) FROM {table}")
    if count == 1 or low is None or high is None or low == high:
        return [None]
    show: Callable[[str], str] = _text if order else str

    def rows_between(first: str, last: str) -> float:
        return _estimate(database, f"SELECT {key} FROM {table} WHERE {key} >= {show(first)} AND {key} < {show(last)}")

    def middle(first: str, last: str) -> str | None:
        if order is None:
            return middle_number(first, last)
        text = middle_text(first, last)
        if text is None or "\\" in text:  # what it means in a condition is up to the server's settings
            return None
        before, between, after = (order.format(_text(one)) for one in (first, text, last))
        ((inside,),) = database.rows(f"SELECT {before} < {between} AND {between} < {after}")
        return text if inside == "1" else None

    values = weigh(low, high, rows_between, middle, _PIECES_PER_SPLIT * count)
    return key_conditions(key, [show(value) for value in weighted_bounds(values, count)], nullable=False)


def _text(value: str) -> str:
    """Return a text as a literal, in which a backslash begins an escape."""
    return literal(value).replace("\\", "\\\\")


def _estimate(database: Database, statement: str) -> float:
    text = "".join(str(line) for (line,) in database.rows(f"EXPLAIN FORMAT=JSON {statement}"))
    return float(next(iter(_find(json.loads(text))), 1))


def _find(node: Any) -> list[Any]:
    """Return the estimates of rows in an explained plan, the outermost first."""
    if isinstance(node, dict):
        own = [node[key] for key in _ESTIMATES if key in node]
        return own + [value for child in node.values() for value in _find(child)]
    return [value for child in node for value in _find(child)] if isinstance(node, list) else []
