"""PostgreSQL: page ranges of the table itself where they can be had, else bounds of a column's histogram."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.jdbc.dialect import (
    Database,
    JdbcDialect,
    KeyKind,
    Request,
    TableEstimate,
    in_one_piece,
    literal,
    split_name,
)
from penstock.connectors.jdbc.splits import key_conditions, page_bounds, page_conditions, weighted_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

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
# The columns whose histogram could cut the table, primary keys first, then what is most unique.
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
"""Types whose values are null or in one order; parts of a composite value may be null."""
_INDEX_SCANS = frozenset({"Index Scan", "Index Only Scan", "Bitmap Heap Scan"})
_FEW = 2
"""Up to so many splits, an index that finds the rows beats reading all pages side by side."""
_TID_RANGE_SCANS = 140_000
"""The release from which a condition on ``ctid`` reads only the pages in question."""


class PostgresDialect(JdbcDialect):
    """PostgreSQL, and what speaks its protocol."""

    name: ClassVar[str] = "PostgreSQL"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:postgresql:",)
    isolation: ClassVar[str] = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"
    patience: ClassVar[str] = "SET LOCAL lock_timeout = '60s'"
    comparable: ClassVar[Mapping[str, KeyKind]] = {
        **dict.fromkeys(("int2", "int4", "int8", "smallserial", "serial", "bigserial"), KeyKind.WHOLE),
        "numeric": KeyKind.DECIMAL,
        **dict.fromkeys(("text", "varchar", "bpchar"), KeyKind.TEXT),
    }

    def waits(self, seconds: float) -> dict[str, str]:
        """Bound the connection and the login; the driver wants whole seconds."""
        return dict.fromkeys(("connectTimeout", "loginTimeout"), str(math.ceil(seconds)))

    def asking_waits(self, seconds: float) -> dict[str, str]:
        """Bound every answer as well."""
        return self.waits(seconds) | {"socketTimeout": str(math.ceil(seconds))}

    def estimate(self, database: Database, request: Request) -> TableEstimate:
        """Ask the planner for rows and widths, and the catalogue for the pages."""
        plan = _explained(database, request.statement)
        rows, width = float(plan["Plan Rows"]), float(plan["Plan Width"])
        found = database.rows(_TABLE, request.table) if request.is_table else []
        if not found:
            return TableEstimate(rows, width, in_one_piece, "one piece, as it is not a table")
        oid, kind, version, block, standby = (str(value) for value in found[0])
        if standby == "t":
            return TableEstimate(rows, width, in_one_piece, "one piece, as a standby cannot share a snapshot")
        parts = database.rows(_PARTS, oid, block) if kind in "rpm" else []
        has_pages = all(access == "heap" for part, _, access in parts if part in ("r", "m"))
        if parts and has_pages and int(version) >= _TID_RANGE_SCANS and "f" not in {part for part, _, _ in parts}:
            pages = [int(size or 0) for _, size, _ in parts]
            how = "page ranges" if kind != "p" else "page ranges over its partitions"
            by_index = bool(request.conditions) and plan["Node Type"] in _INDEX_SCANS

            def cut(_: Database, count: int) -> list[str | None]:
                if by_index and count <= _FEW:
                    return [None]
                return page_conditions(page_bounds(pages, count))

            return TableEstimate(rows, width, cut, how)
        return self._by_column(database, request, oid, rows, width)

    def _by_column(self, database: Database, request: Request, oid: str, rows: float, width: float) -> TableEstimate:
        """Cut a table that has no pages of its own by the histogram of a column."""
        for name, type_name, collation in database.rows(_KEYS.format(types=", ".join(map(literal, _ORDERED))), oid):
            collate = f'COLLATE "{collation}"' if collation else ""
            statement = _VALUES.format(type=type_name, which=_WHICH, collate=collate)
            found = database.rows(statement, oid, str(name), oid, str(name))
            if len(found) > 1:
                values = [(str(value), float(share or 0)) for value, share in found]
                column = request.quote(str(name))

                def cut(database: Database, count: int) -> list[str | None]:
                    bounds = [f"{literal(value)}::{type_name}" for value in weighted_bounds(values, count)]  # noqa: B023
                    if not _ascending(database, bounds, collate):  # noqa: B023
                        return [None]
                    # NOT NULL is no proof: a table below, or another server, need not keep it.
                    return key_conditions(column, bounds, nullable=True)  # noqa: B023

                return TableEstimate(rows, width, cut, f"ranges of {name} by its histogram")
        return TableEstimate(rows, width, in_one_piece, "one piece, as it has neither pages nor an analysed column")

    def export_snapshot(self, database: Database) -> str:
        """Hold a snapshot open for as long as the connection is."""
        database.begin()
        database.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        ((name,),) = database.rows("SELECT pg_export_snapshot()")
        return f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '{name}'"

    def has_table(self, database: Database, table: str) -> bool:
        """Look the name up on the search path."""
        return database.rows("SELECT to_regclass(?) IS NOT NULL", table) == [("t",)]

    def lock(self, database: Database, table: str) -> None:
        """Lock it: a DELETE does not see the rows that others commit while it waits for those they delete."""
        if database.rows(_LOCKABLE, table):
            database.run(f"LOCK TABLE {table} IN EXCLUSIVE MODE")

    def tables_like(self, database: Database, table: str) -> list[str]:
        """Look names up in the catalogue."""
        schema, name = split_name(table)
        return [f"{schema}.{found}" if schema else str(found) for (found,) in database.rows(_LIKE, name, name, schema)]

    def free_connections(self, database: Database) -> int | None:
        """Return what ``max_connections`` leaves to ordinary users."""
        ((free,),) = database.rows(
            "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
            " - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
        )
        return int(free or 1)


def _ascending(database: Database, bounds: Sequence[str], collate: str) -> bool:
    """Whether the database itself finds each bound less than the next: else splits would overlap."""
    pairs = [f"{low} {collate} < {high} {collate}" for low, high in pairwise(bounds)]
    return not pairs or database.rows("SELECT " + " AND ".join(pairs)) == [("t",)]


def _explained(database: Database, statement: str) -> Mapping[str, Any]:
    text = "".join(str(line) for (line,) in database.rows(f"EXPLAIN (FORMAT JSON) {statement}"))
    plan: Mapping[str, Any] = json.loads(text)[0]["Plan"]
    return plan
