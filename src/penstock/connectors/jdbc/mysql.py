"""MySQL and MariaDB: splits by ranges of the primary key, balanced by the optimiser's estimates."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connectors.jdbc.dialect import (
    JdbcDialect,
    KeyKind,
    Request,
    TableEstimate,
    UniqueKey,
    literal,
    single_split,
)
from penstock.connectors.jdbc.splits import key_conditions, middle_number, middle_text, weigh, weighted_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.spark.io.jdbc import JdbcConnection

_TABLE = """
SELECT table_schema, table_name, table_rows, avg_row_length FROM information_schema.tables
WHERE table_name = ? AND table_schema = coalesce(nullif(?, ''), database()) AND table_type = 'BASE TABLE'
"""
_LIKE = """
SELECT table_name FROM information_schema.tables
WHERE substr(table_name, 1, length(?)) = ? AND table_schema = coalesce(nullif(replace(?, '`', ''), ''), database())
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
_RANGES_PER_SPLIT = 8
_ESTIMATES = ("rows", "rows_produced_per_join", "rows_examined_per_scan")


class MySqlDialect(JdbcDialect):
    """MySQL and MariaDB; both need a ``jdbc:mysql:`` URL, by which Spark selects its dialect."""

    name: ClassVar[str] = "MySQL"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:mysql:",)
    isolation: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    transactional: ClassVar[str] = "ENGINE=InnoDB"
    prefix_query: ClassVar[str] = _LIKE
    comparable: ClassVar[Mapping[str, KeyKind]] = {
        **{
            f"{name}{sign}": KeyKind.WHOLE
            for name in ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")
            for sign in ("", " unsigned")
        },
        "decimal": KeyKind.DECIMAL,
        **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), KeyKind.TEXT),
    }
    no_snapshot_reason: ClassVar[str] = (
        "its transactions cannot share a snapshot, so rows written meanwhile may be seen or not"
    )

    def connect_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for a timeout of connecting, in milliseconds."""
        return {"connectTimeout": str(round(1000 * seconds))}

    def query_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for a timeout of connecting and of every query."""
        return self.connect_timeouts(seconds) | {"socketTimeout": str(round(1000 * seconds))}

    def estimate(self, database: JdbcConnection, request: Request) -> TableEstimate:
        """Return the optimiser's estimate of rows, with the row width and the key of the catalogue."""
        schema, _, table = request.table.replace("`", "").rpartition(".")
        tables = database.rows(_TABLE, table, schema) if request.is_table else []
        rows = _estimate(database, request.statement)
        if not tables:
            return TableEstimate(rows, 100.0, single_split, "a single split, as it is not a table")
        schema_name, table_name, _, width = tables[0]
        keys = database.rows(_KEY, str(schema_name), str(table_name))
        row_bytes = float(width or 100)
        if not keys:
            return TableEstimate(rows, row_bytes, single_split, "a single split, as it has no primary key")
        ((name, data_type, charset, collation),) = keys
        if data_type not in _NUMBERS | _TEXTS:
            return TableEstimate(
                rows, row_bytes, single_split, f"a single split, as its key {name} is of type {data_type}"
            )
        key = request.quote(str(name))
        order = f"CONVERT({{}} USING {charset}) COLLATE {collation}" if data_type in _TEXTS else None
        split_conditions = partial(_split_conditions, request.table, key, order)
        return TableEstimate(rows, row_bytes, split_conditions, f"ranges of its key {name}")

    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Return whether the catalogue has the table."""
        schema, _, name = table.replace("`", "").rpartition(".")
        return bool(database.rows(_TABLE, name, schema))

    def upsert_keys(self, database: JdbcConnection, table: str) -> list[UniqueKey]:
        """Return the unique indexes of a table; an upsert replaces a row that conflicts in any of them."""
        schema, _, name = table.replace("`", "").rpartition(".")
        indexes: dict[str | None, list[tuple[str | None, ...]]] = {}
        for index, *column in database.rows(_UNIQUE, name, schema):
            indexes.setdefault(index, []).append(tuple(column))
        return [
            UniqueKey(
                frozenset(str(name) for name, _, _ in columns),
                frozenset(str(name) for name, _, filled in columns if filled == "1" or not name),
                is_whole=all(name and length is None for name, length, _ in columns),
            )
            for columns in indexes.values()
        ]

    def on_conflict(self, key: Sequence[str], others: Sequence[str]) -> str:
        """Return the clause of an INSERT that replaces rows with the same key."""
        changes = ", ".join(f"{name} = VALUES({name})" for name in others or key)
        return f"ON DUPLICATE KEY UPDATE {changes}"

    def free_connections(self, database: JdbcConnection) -> int | None:
        """Return the connections that ``max_connections`` leaves."""
        ((most,),) = database.rows("SELECT @@max_connections")
        used = database.rows("SHOW STATUS LIKE 'Threads_connected'")
        return max(1, int(most or 1) - int(used[0][1] or 0))


def _split_conditions(
    table: str, key: str, order: str | None, database: JdbcConnection, count: int
) -> list[str | None]:
    """Return conditions on a key; `order` formats a literal with the key's collation, None for numeric keys."""
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
        if text is None or "\\" in text:  # its meaning in a literal depends on the server's settings
            return None
        low_text, between, high_text = (order.format(_text(value)) for value in (first, text, last))
        ((is_between,),) = database.rows(f"SELECT {low_text} < {between} AND {between} < {high_text}")
        return text if is_between == "1" else None

    values = weigh(low, high, rows_between, middle, _RANGES_PER_SPLIT * count)
    return key_conditions(key, [show(value) for value in weighted_bounds(values, count)], nullable=False)


def _text(value: str) -> str:
    """Return a string as a literal of MySQL, with backslashes escaped."""
    return literal(value).replace("\\", "\\\\")


def _estimate(database: JdbcConnection, statement: str) -> float:
    text = "".join(str(line) for (line,) in database.rows(f"EXPLAIN FORMAT=JSON {statement}"))
    return float(next(iter(_find(json.loads(text))), 1))


def _find(node: Any) -> list[Any]:
    """Return the row estimates of an explained plan, the outermost first."""
    if isinstance(node, dict):
        own = [node[key] for key in _ESTIMATES if key in node]
        return own + [value for child in node.values() for value in _find(child)]
    return [value for child in node for value in _find(child)] if isinstance(node, list) else []
