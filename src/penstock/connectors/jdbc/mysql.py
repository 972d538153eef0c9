"""MySQL and MariaDB: splits by ranges of the primary key, balanced by the optimizer's estimates."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connectors.jdbc.dialect import (
    JdbcDialect,
    KeyType,
    ReadRequest,
    TableEstimate,
    UniqueKey,
    literal,
    single_split,
)
from penstock.connectors.jdbc.splits import key_conditions, middle_number, middle_text, weigh_ranges, weighted_bounds

if TYPE_CHECKING:
    from penstock.spark.io.jdbc import JdbcConnection

_TABLE_QUERY = """
SELECT table_schema, table_name, table_rows, avg_row_length FROM information_schema.tables
WHERE table_name = ? AND table_schema = coalesce(nullif(?, ''), database()) AND table_type = 'BASE TABLE'
"""
_PREFIX_QUERY = """
SELECT table_name FROM information_schema.tables
WHERE substr(table_name, 1, length(?)) = ? AND table_schema = coalesce(nullif(replace(?, '`', ''), ''), database())
"""
_KEY_QUERY = """
SELECT c.column_name, c.data_type, c.character_set_name, c.collation_name
FROM information_schema.statistics s
JOIN information_schema.columns c USING (table_schema, table_name, column_name)
WHERE s.table_schema = ? AND s.table_name = ? AND s.index_name = 'PRIMARY' AND s.seq_in_index = 1
"""
# `is_filled`: whether MySQL fills the column if an INSERT omits it. An automatic number never conflicts.
_UNIQUE_QUERY = """
SELECT s.index_name, lower(coalesce(s.column_name, '')), s.sub_part,
  coalesce(c.column_default, 'NULL') <> 'NULL' OR c.extra LIKE '%GENERATED%' OR c.generation_expression <> ''
  OR (c.is_nullable = 'NO' AND c.extra NOT LIKE '%auto_increment%' AND @@sql_mode NOT LIKE '%STRICT%') AS is_filled
FROM information_schema.statistics s
LEFT JOIN information_schema.columns c USING (table_schema, table_name, column_name)
WHERE s.table_name = ? AND s.table_schema = coalesce(nullif(?, ''), database()) AND s.non_unique = 0
"""
_NUMBER_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"})
_TEXT_TYPES = frozenset({"char", "varchar"})
_RANGES_PER_SPLIT = 8  # key ranges per split whose rows are estimated, so that splits get about equal rows
_ESTIMATE_KEYS = ("rows", "rows_produced_per_join", "rows_examined_per_scan")  # in EXPLAIN's JSON; first: MariaDB


class MySqlDialect(JdbcDialect):
    """MySQL and MariaDB; both need a ``jdbc:mysql:`` URL, by which Spark selects its dialect."""

    name: ClassVar[str] = "MySQL"
    url_prefixes: ClassVar[tuple[str, ...]] = ("jdbc:mysql:",)
    isolation_statement: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    transactional_suffix: ClassVar[str] = "ENGINE=InnoDB"
    prefix_query: ClassVar[str] = _PREFIX_QUERY
    comparable_types: ClassVar[Mapping[str, KeyType]] = {
        **{
            f"{name}{sign}": KeyType.WHOLE
            for name in ("tinyint", "smallint", "mediumint", "int", "integer", "bigint")
            for sign in ("", " unsigned")
        },
        "decimal": KeyType.DECIMAL,
        **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), KeyType.TEXT),
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

    def estimate(self, database: JdbcConnection, request: ReadRequest) -> TableEstimate:
        """Return the optimizer's estimate of the rows; the catalog supplies the average row size and the key."""
        schema, _, table = request.table.replace("`", "").rpartition(".")
        tables = database.rows(_TABLE_QUERY, table, schema) if request.is_table else []
        rows = _estimate(database, request.statement)
        if not tables:
            return TableEstimate(rows, 100.0, single_split, "a single split, as it is not a table")
        schema_name, table_name, _, width = tables[0]
        keys = database.rows(_KEY_QUERY, str(schema_name), str(table_name))
        row_bytes = float(width or 100)  # 100 bytes are assumed if there are no statistics yet
        if not keys:
            return TableEstimate(rows, row_bytes, single_split, "a single split, as it has no primary key")
        ((name, data_type, charset, collation),) = keys
        if data_type not in _NUMBER_TYPES | _TEXT_TYPES:
            return TableEstimate(
                rows, row_bytes, single_split, f"a single split, as its key {name} is of type {data_type}"
            )
        key = request.quote(str(name))
        collation_format = f"CONVERT({{}} USING {charset}) COLLATE {collation}" if data_type in _TEXT_TYPES else None
        split_conditions = partial(_split_conditions, request.table, key, collation_format)
        return TableEstimate(rows, row_bytes, split_conditions, f"ranges of its key {name}")

    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Whether the catalog has the table."""
        schema, _, name = table.replace("`", "").rpartition(".")
        return bool(database.rows(_TABLE_QUERY, name, schema))

    def upsert_keys(self, database: JdbcConnection, table: str) -> list[UniqueKey]:
        """Return the unique indexes of a table; an upsert replaces a row that conflicts in any of them."""
        schema, _, name = table.replace("`", "").rpartition(".")
        indexes: dict[str | None, list[tuple[str | None, ...]]] = {}
        for index, *column in database.rows(_UNIQUE_QUERY, name, schema):
            indexes.setdefault(index, []).append(tuple(column))
        return [
            UniqueKey(
                frozenset(str(name) for name, _, _ in columns),
                frozenset(str(name) for name, _, is_filled in columns if is_filled == "1" or not name),
                is_whole=all(name and prefix_length is None for name, prefix_length, _ in columns),
            )
            for columns in indexes.values()
        ]

    def on_conflict(self, key: Sequence[str], other_columns: Sequence[str]) -> str:
        """Return the clause of an INSERT that replaces rows with the same key."""
        changes = ", ".join(f"{name} = VALUES({name})" for name in other_columns or key)
        return f"ON DUPLICATE KEY UPDATE {changes}"

    def free_connections(self, database: JdbcConnection) -> int | None:
        """Return the number of connections that ``max_connections`` still allows."""
        ((maximum,),) = database.rows("SELECT @@max_connections")
        used = database.rows("SHOW STATUS LIKE 'Threads_connected'")
        return max(1, int(maximum or 1) - int(used[0][1] or 0))


def _split_conditions(
    table: str, key: str, collation_format: str | None, database: JdbcConnection, count: int
) -> list[str | None]:
    """Return conditions of splits; `collation_format` (None for numbers) gives literals the collation of the key."""
    ((low, high),) = database.rows(f"SELECT min({key}), max({key}) FROM {table}")
    if count == 1 or low is None or high is None or low == high:
        return [None]
    quote: Callable[[str], str] = _text_literal if collation_format else str

    def rows_between(first: str, last: str) -> float:
        return _estimate(database, f"SELECT {key} FROM {table} WHERE {key} >= {quote(first)} AND {key} < {quote(last)}")

    def middle(first: str, last: str) -> str | None:
        if collation_format is None:
            return middle_number(first, last)
        text = middle_text(first, last)
        if text is None or "\\" in text:  # the server's settings decide what a backslash in a literal means
            return None
        low_sql, middle_sql, high_sql = (collation_format.format(_text_literal(value)) for value in (first, text, last))
        ((is_between,),) = database.rows(f"SELECT {low_sql} < {middle_sql} AND {middle_sql} < {high_sql}")
        return text if is_between == "1" else None

    values = weigh_ranges(low, high, rows_between, middle, _RANGES_PER_SPLIT * count)
    return key_conditions(key, [quote(value) for value in weighted_bounds(values, count)], nullable=False)


def _text_literal(value: str) -> str:
    """Return a string as a literal of MySQL, with backslashes escaped."""
    return literal(value).replace("\\", "\\\\")


def _estimate(database: JdbcConnection, statement: str) -> float:
    text = "".join(str(line) for (line,) in database.rows(f"EXPLAIN FORMAT=JSON {statement}"))
    return float(next(iter(_find_row_estimates(json.loads(text))), 1))


def _find_row_estimates(node: Any) -> list[Any]:
    """Return the row estimates of an explained plan, the outermost first."""
    if isinstance(node, dict):
        estimates = [node[key] for key in _ESTIMATE_KEYS if key in node]
        return estimates + [value for child in node.values() for value in _find_row_estimates(child)]
    return [value for child in node for value in _find_row_estimates(child)] if isinstance(node, list) else []
