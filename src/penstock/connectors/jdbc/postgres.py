"""PostgreSQL: splits by page ranges of the table if possible, else by the histogram of a column."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.jdbc.dialect import JdbcDialect, KeyKind, Request, TableEstimate, literal, single_split
from penstock.connectors.jdbc.splits import key_conditions, page_bounds, weighted_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from penstock.spark.io.jdbc import JdbcConnection

_TABLE = """
SELECT c.oid, c.relkind, current_setting('server_version_num')::int, current_setting('block_size')::int,
  pg_is_in_recovery()
FROM pg_class c WHERE c.oid = to_regclass(?)
"""
_LOCKABLE = "SELECT 1 FROM pg_class WHERE oid = to_regclass(?) AND relkind IN ('r', 'p')"
_PARTS = """
WITH RECURSIVE tree AS (
  SELECT ?::oid AS oid UNION ALL SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid
)
SELECT c.relkind, pg_relation_size(c.oid) / ?::bigint, am.amname
FROM tree JOIN pg_class c USING (oid) LEFT JOIN pg_am am ON am.oid = c.relam
"""
_LIKE = """
SELECT tablename FROM pg_tables WHERE substr(tablename, 1, length(?)) = ?
  AND schemaname = coalesce(nullif(replace(?, '"', ''), ''), current_schema())
"""
# The columns whose histogram could divide the table: primary keys first, then the most distinct ones.
_KEYS = """
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
_VALUES = """
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
_WHICH = """
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
"""Types with a total order; composite values may have null fields."""
_INDEX_SCANS = frozenset({"Index Scan", "Index Only Scan", "Bitmap Heap Scan"})
_FEW_SPLITS = 2
"""The number of splits up to which an index scan is faster than a parallel scan of all pages."""
_TID_RANGE_SCANS = 140_000
"""The server version from which a condition on ``ctid`` reads only the matching pages."""


class PostgresDialect(JdbcDialect):
    """PostgreSQL, and databases that use its protocol."""

    name: ClassVar[str] = "PostgreSQL"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:postgresql:",)
    isolation: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    lock_timeout: ClassVar[str] = "SET LOCAL lock_timeout = '60s'"
    prefix_query: ClassVar[str] = _LIKE
    comparable: ClassVar[Mapping[str, KeyKind]] = {
        **dict.fromkeys(("int2", "int4", "int8", "smallserial", "serial", "bigserial"), KeyKind.WHOLE),
        "numeric": KeyKind.DECIMAL,
        **dict.fromkeys(("text", "varchar", "bpchar"), KeyKind.TEXT),
    }

    def connect_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for timeouts of connecting and login, in whole seconds."""
        return dict.fromkeys(("connectTimeout", "loginTimeout"), str(math.ceil(seconds)))

    def query_timeouts(self, seconds: float) -> dict[str, str]:
        """Return the driver properties for timeouts of connecting and of every query."""
        return self.connect_timeouts(seconds) | {"socketTimeout": str(math.ceil(seconds))}

    def estimate(self, database: JdbcConnection, request: Request) -> TableEstimate:
        """Return the planner's estimate of rows and their width, with the pages of the catalogue."""
        plan = _explain(database, request.statement)
        rows, width = float(plan["Plan Rows"]), float(plan["Plan Width"])
        tables = database.rows(_TABLE, request.table) if request.is_table else []
        if not tables:
            return TableEstimate(rows, width, single_split, "a single split, as it is not a table")
        oid, kind, version, block, standby = (str(value) for value in tables[0])
        if standby == "t":
            return TableEstimate(rows, width, single_split, "a single split, as a standby cannot share a snapshot")
        parts = database.rows(_PARTS, oid, block) if kind in "rpm" else []
        has_pages = all(access == "heap" for part, _, access in parts if part in ("r", "m"))
        if parts and has_pages and int(version) >= _TID_RANGE_SCANS and "f" not in {part for part, _, _ in parts}:
            pages = [int(size or 0) for _, size, _ in parts]
            split_by = "page ranges" if kind != "p" else "page ranges over its partitions"
            by_index = bool(request.conditions) and plan["Node Type"] in _INDEX_SCANS

            def split_conditions(_: JdbcConnection, count: int) -> list[str | None]:
                if by_index and count <= _FEW_SPLITS:
                    return [None]
                bounds = [f"'({page},0)'::tid" for page in page_bounds(pages, count)]
                return key_conditions("ctid", bounds, nullable=False)  # the last is open, for pages added later

            return TableEstimate(rows, width, split_conditions, split_by)
        return self._by_column(database, request, oid, rows, width)

    def _by_column(
        self, database: JdbcConnection, request: Request, oid: str, rows: float, width: float
    ) -> TableEstimate:
        """Return an estimate for a table without pages of its own, which is divided by the histogram of a column."""
        for name, type_name, collation in database.rows(_KEYS.format(types=", ".join(map(literal, _ORDERED))), oid):
            collate = f'COLLATE "{collation}"' if collation else ""
            statement = _VALUES.format(type=type_name, which=_WHICH, collate=collate)
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
        return TableEstimate(
            rows, width, single_split, "a single split, as it has neither pages nor an analysed column"
        )

    def export_snapshot(self, database: JdbcConnection) -> str:
        """Open a snapshot that lasts as long as the connection; return the statement that imports it."""
        database.begin()
        database.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ((name,),) = database.rows("SELECT pg_export_snapshot()")
        return f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{name}'"

    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Return whether the search path has the table."""
        return database.rows("SELECT to_regclass(?) IS NOT NULL", table) == [("t",)]

    def lock(self, database: JdbcConnection, table: str) -> None:
        """Lock the table: a DELETE would miss rows that others commit while it waits for their row locks."""
        if database.rows(_LOCKABLE, table):
            database.run(f"LOCK TABLE {table} IN EXCLUSIVE MODE")

    def free_connections(self, database: JdbcConnection) -> int | None:
        """Return the connections that ``max_connections`` leaves to ordinary users."""
        ((free,),) = database.rows(
            "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
            " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
        )
        return int(free or 1)


def _is_ascending(database: JdbcConnection, bounds: Sequence[str], collate: str) -> bool:
    """Return whether the database compares each bound as less than the next; else splits would overlap."""
    pairs = [f"{low} {collate} < {high} {collate}" for low, high in pairwise(bounds)]
    return not pairs or database.rows("SELECT " + " AND ".join(pairs)) == [("t",)]


def _explain(database: JdbcConnection, statement: str) -> Mapping[str, Any]:
    text = "".join(str(line) for (line,) in database.rows(f"EXPLAIN (FORMAT JSON) {statement}"))
    plan: Mapping[str, Any] = json.loads(text)[0]["Plan"]
    return plan
