"""PostgreSQL: splits by page ranges of the table if possible, else by the histogram of a column."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connectors.jdbc.dialect import JdbcDialect, KeyType, ReadRequest, TableEstimate, literal, single_split
from penstock.connectors.jdbc.splits import key_conditions, page_bounds, weighted_bounds

if TYPE_CHECKING:
    from penstock.spark.io.jdbc import JdbcConnection

_TABLE_QUERY = """
SELECT c.oid, c.relkind, current_setting('server_version_num')::int, current_setting('block_size')::int,
  pg_is_in_recovery()
FROM pg_class c WHERE c.oid = to_regclass(?)
"""
_LOCKABLE_QUERY = "SELECT 1 FROM pg_class WHERE oid = to_regclass(?) AND relkind IN ('r', 'p')"
_PARTITIONS_QUERY = """
WITH RECURSIVE tree AS (
  SELECT ?::oid AS oid UNION ALL SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT c.relkind, pg_relation_size(c.oid) / ?::bigint, am.amname
FROM tree JOIN pg_class c USING (oid) LEFT JOIN pg_am am ON am.oid = c.relam
"""
_PREFIX_QUERY = """
SELECT tablename FROM pg_tables WHERE substr(tablename, 1, length(?)) = ?
  AND schemaname = coalesce(nullif(replace(?, '"', ''), ''), current_schema())
"""
# Selects columns whose histogram could divide the table: the primary key, then those with the most distinct values.
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), coll.collname
FROM pg_stats s
JOIN pg_class c ON c.oid = ?::oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = s.attname
LEFT JOIN pg_collation coll ON coll.oid = a.attcollation AND coll.collname <> 'default'
LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary AND a.attnum = i.indkey[0]
JOIN pg_type t ON t.oid = a.atttypid AND t.typname IN ({types})
WHERE s.schemaname = n.nspname AND s.tablename = c.relname AND s.histogram_bounds IS NOT NULL
ORDER BY s.inherited DESC, i.indrelid IS NULL,
  CASE WHEN s.n_distinct < 0 THEN -s.n_distinct * 1e9 ELSE s.n_distinct END DESC
"""
# The bounds of a column's histogram and its most common values, each with the share of the rows that it represents.
_VALUES_QUERY = """
SELECT w.v::text AS shown, sum(w.f) FROM (
  SELECT unnest(s.histogram_bounds::text::{type}[]) AS v,
    (1 - s.null_frac - coalesce((SELECT sum(x) FROM unnest(s.most_common_freqs) x), 0))
    / (array_length(s.histogram_bounds::text::{type}[], 1) - 1) AS f
  FROM pg_stats s, pg_class c, pg_namespace n WHERE {which}
  UNION ALL
  SELECT unnest(s.most_common_vals::text::{type}[]), unnest(s.most_common_freqs)
  FROM pg_stats s, pg_class c, pg_namespace n WHERE {which}
) w GROUP BY w.v ORDER BY w.v {collate}
"""
_COLUMN_CONDITION = """
c.oid = ?::oid AND n.oid = c.relnamespace AND s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = ?
"""
_ORDERED = (
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "text",
    "varchar",
    "bpchar",
    "date",
    "timestamp",
    "timestamptz",
    "uuid",
)
"""Types with a total order; composite types have none, as their values may have null fields."""
_INDEX_SCANS = frozenset({"Index Scan", "Index Only Scan", "Bitmap Heap Scan"})
_FEW_SPLITS = 2
"""Up to this number of splits, reading all pages in splits is slower than a single index scan."""
_TID_SCAN_VERSION = 140_000
"""The server version from which a condition on ``ctid`` reads only the matching pages."""


class PostgresDialect(JdbcDialect):
    """PostgreSQL, and databases that use its protocol."""

    name: ClassVar[str] = "PostgreSQL"
    url_prefixes: ClassVar[tuple[str, ...]] = ("jdbc:postgresql:",)
    isolation_statement: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    lock_timeout_statement: ClassVar[str] = "SET LOCAL lock_timeout = '60s'"
    prefix_query: ClassVar[str] = _PREFIX_QUERY
    comparable_types: ClassVar[Mapping[str, KeyType]] = {
        **dict.fromkeys(("int2", "int4", "int8", "smallserial", "serial", "bigserial"), KeyType.WHOLE),
        "numeric": KeyType.DECIMAL,
        **dict.fromkeys(("text", "varchar", "bpchar"), KeyType.TEXT),
    }

    def connect_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for timeouts of connecting and login, in whole seconds."""
        return dict.fromkeys(("connectTimeout", "loginTimeout"), str(math.ceil(seconds)))

    def query_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for timeouts of connecting and of every query."""
        return self.connect_timeouts(seconds) | {"socketTimeout": str(math.ceil(seconds))}

    def estimate(self, database: JdbcConnection, request: ReadRequest) -> TableEstimate:
        """Return the planner's estimate of the rows and their width, with splits by pages of the table if possible."""
        plan = _explain(database, request.statement)
        rows, width = float(plan["Plan Rows"]), float(plan["Plan Width"])
        tables = database.rows(_TABLE_QUERY, request.table) if request.is_table else []
        if not tables:
            return TableEstimate(rows, width, single_split, "a single split, as it is not a table")
        oid, relation_kind, version, block, is_standby = (str(value) for value in tables[0])
        if is_standby == "t":
            return TableEstimate(rows, width, single_split, "a single split, as a standby cannot share a snapshot")
        # Kinds of relations: r table, p partitioned table, m materialized view, f foreign table.
        partitions = database.rows(_PARTITIONS_QUERY, oid, block) if relation_kind in "rpm" else []
        has_pages = all(access == "heap" if kind in ("r", "m") else kind != "f" for kind, _, access in partitions)
        if partitions and has_pages and int(version) >= _TID_SCAN_VERSION:
            pages = [int(size or 0) for _, size, _ in partitions]
            split_by = "page ranges" if relation_kind != "p" else "page ranges over its partitions"
            prefers_index = bool(request.conditions) and plan["Node Type"] in _INDEX_SCANS

            def split_conditions(_: JdbcConnection, count: int) -> list[str | None]:
                if prefers_index and count <= _FEW_SPLITS:
                    return [None]
                bounds = [f"'({page},0)'::tid" for page in page_bounds(pages, count)]
                return key_conditions("ctid", bounds, nullable=False)  # the last split has all later pages

            return TableEstimate(rows, width, split_conditions, split_by)
        return self._by_column(database, request, oid, rows, width)

    def _by_column(
        self, database: JdbcConnection, request: ReadRequest, oid: str, rows: float, width: float
    ) -> TableEstimate:
        """Return an estimate with splits by a histogram, for a table that cannot be split by pages."""
        for name, type_name, collation in database.rows(_COLUMNS.format(types=", ".join(map(literal, _ORDERED))), oid):
            collate = f'COLLATE "{collation}"' if collation else ""
            statement = _VALUES_QUERY.format(type=type_name, which=_COLUMN_CONDITION, collate=collate)
            histogram = database.rows(statement, oid, str(name), oid, str(name))
            if len(histogram) > 1:
                values = [(str(value), float(share or 0)) for value, share in histogram]
                column = request.quote(str(name))

                def split_conditions(database: JdbcConnection, count: int) -> list[str | None]:
                    bounds = [f"{literal(value)}::{type_name}" for value in weighted_bounds(values, count)]  # noqa: B023
                    if not _is_ascending(database, bounds, collate):  # noqa: B023
                        return [None]
                    # Nullable despite NOT NULL: child tables and foreign tables need not enforce it.
                    return key_conditions(column, bounds, nullable=True)  # noqa: B023

                return TableEstimate(rows, width, split_conditions, f"ranges of {name} by its histogram")
        obstacle = "it can be split neither by pages nor by the histogram of a column"
        return TableEstimate(rows, width, single_split, f"a single split, as {obstacle}")

    def export_snapshot(self, database: JdbcConnection) -> str:
        """Open a snapshot that lasts as long as the connection; return the statement that imports it."""
        database.begin()
        database.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ((name,),) = database.rows("SELECT pg_export_snapshot()")
        return f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{name}'"

    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Whether the search path has the table."""
        return database.rows("SELECT to_regclass(?) IS NOT NULL", table) == [("t",)]

    def lock(self, database: JdbcConnection, table: str) -> None:
        """Lock the table: a DELETE would miss rows that other jobs commit while it waits for their row locks."""
        if database.rows(_LOCKABLE_QUERY, table):
            database.run(f"LOCK TABLE {table} IN EXCLUSIVE MODE")

    def free_connections(self, database: JdbcConnection) -> int | None:
        """Return how many more connections ordinary users may open."""
        ((free,),) = database.rows(
            "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
            " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
        )
        return int(free or 1)


def _is_ascending(database: JdbcConnection, bounds: Sequence[str], collate: str) -> bool:
    """Whether the database compares each bound as less than the next bound; otherwise splits would overlap."""
    pairs = [f"{low} {collate} < {high} {collate}" for low, high in pairwise(bounds)]
    return not pairs or database.rows("SELECT " + " AND ".join(pairs)) == [("t",)]


def _explain(database: JdbcConnection, statement: str) -> Mapping[str, Any]:
    text = "".join(str(line) for (line,) in database.rows(f"EXPLAIN (FORMAT JSON) {statement}"))
    plan: Mapping[str, Any] = json.loads(text)[0]["Plan"]
    return plan
