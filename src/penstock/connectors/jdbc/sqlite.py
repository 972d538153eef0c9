"""SQLite: splits by ranges of row ids, balanced by sampling."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.core.extras import absolute_path
from penstock.connectors.jdbc.dialect import JdbcDialect, ReadRequest, TableEstimate, single_split
from penstock.connectors.jdbc.splits import key_conditions, middle_number, weigh_ranges, weighted_bounds

if TYPE_CHECKING:
    from penstock.spark.io.jdbc import JdbcConnection

log = logging.getLogger("penstock.sources")

_TABLE_QUERY = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
_PREFIX_QUERY = "SELECT name FROM sqlite_master WHERE type='table' AND substr(name, 1, length(?)) = ? AND ? IS NOT NULL"
_COLUMNS_QUERY = "SELECT lower(name) FROM pragma_table_xinfo(?)"
_ROW_IDS = ("rowid", "_rowid_", "oid")
"""The names of the row id; a column of the same name hides the row id."""
_SAMPLE_ROWS = 200
"""Rows per sample."""
_RANGES_PER_SPLIT = 6  # ranges per split whose rows are estimated, so that splits get about equal rows
_ESTIMATE_RANGES = 64  # the number of ranges for the estimate of the whole table


class SqliteDialect(JdbcDialect):
    """SQLite, which has no statistics: a few rows of each range are sampled.

    Keys of dynamic filters are not pushed down: a column may have values of an undeclared type, which Spark converts.
    """

    name: ClassVar[str] = "SQLite"
    url_prefixes: ClassVar[tuple[str, ...]] = ("jdbc:sqlite:",)
    has_users: ClassVar[bool] = False
    prefix_query: ClassVar[str] = _PREFIX_QUERY
    no_snapshot_reason: ClassVar[str] = (
        "its connections cannot share a snapshot, so rows written meanwhile may be seen or not"
    )

    def with_absolute_path(self, url: str) -> str:
        """Return a URL with the absolute path of the file; URLs of in-memory databases are unchanged."""
        (prefix,) = self.url_prefixes
        scheme = "file:" if url.startswith(f"{prefix}file:") else ""
        path = url.removeprefix(prefix + scheme)
        return url if not path or path.startswith((":", "?", "/")) else f"{prefix}{scheme}{absolute_path(path)}"

    def estimate(self, database: JdbcConnection, request: ReadRequest) -> TableEstimate:
        """Return an estimate from the width of the first rows, and the density of row ids in samples."""
        table = request.table
        sizes = " + ".join(f"coalesce(length({request.quote(name)}), 1)" for name in request.columns) or "1"
        ((width,),) = database.rows(f"SELECT avg({sizes}) FROM (SELECT * FROM {table} LIMIT {_SAMPLE_ROWS})")
        row_bytes = float(width or 1)
        row_id = _row_id(database, request)
        if row_id is None:  # the number of rows is unknown: assume that of a sample
            return TableEstimate(_SAMPLE_ROWS, row_bytes, single_split, "a single split, as it has no row ids")
        ranges = _weigh_row_ids(database, table, row_id, _ESTIMATE_RANGES)

        def split_conditions(database: JdbcConnection, count: int) -> list[str | None]:
            ranges = _weigh_row_ids(database, table, row_id, _RANGES_PER_SPLIT * count)
            return key_conditions(row_id, weighted_bounds(ranges, count), nullable=False)

        return TableEstimate(sum(rows for _, rows in ranges), row_bytes, split_conditions, "ranges of row ids")

    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Whether the catalog has the table."""
        return bool(database.rows(_TABLE_QUERY, plain_name(table) or table.strip('"`').rpartition(".")[2]))

    def free_writers(self, database: JdbcConnection) -> int | None:  # noqa: ARG002
        """Return 1: SQLite allows a single writer at a time."""
        return 1


def _row_id(database: JdbcConnection, request: ReadRequest) -> str | None:
    """Return the name of the row id of an ordinary table; None for views and for tables without row ids.

    A query tests the name, and fails if the table has no such row id.
    """
    name = plain_name(request.table) if request.is_table else None
    definitions = database.rows(_TABLE_QUERY, name) if name else []
    if not definitions or name is None or not str(definitions[0][0]).lstrip().upper().startswith("CREATE TABLE"):
        return None
    column_names = {column for (column,) in database.rows(_COLUMNS_QUERY, name)}
    row_id = next((candidate for candidate in _ROW_IDS if candidate not in column_names), None)
    if row_id is None or not column_names:
        return None
    try:
        database.rows(f"SELECT {row_id} FROM {request.table} LIMIT 0")
    except Exception:  # a table WITHOUT ROWID
        log.debug("%s has no row ids", request.table, exc_info=True)
        return None
    return row_id


def plain_name(table: str) -> str | None:
    """Return a table name without quotes; None for a name with several parts."""
    text = table.strip()
    quote = text[:1]
    if quote in {'"', "`"} and text.endswith(quote):
        inner = text[1:-1].replace(quote * 2, "\0")
        return None if quote in inner else inner.replace("\0", quote)
    return None if "." in text else text


def _weigh_row_ids(database: JdbcConnection, table: str, row_id: str, count: int) -> list[tuple[str, float]]:
    """Return the first row ids of at most `count` ranges, each with the estimated rows of its range."""
    ((low, high),) = database.rows(f"SELECT min({row_id}), max({row_id}) FROM {table}")
    if low is None or high is None:
        return []

    def density(start: int) -> float:
        """Return the number of rows per row id in a sample that begins at a row id."""
        ((rows, last),) = database.rows(
            f"SELECT count(*), max({row_id}) FROM"
            f" (SELECT {row_id} FROM {table} WHERE {row_id} >= {start} ORDER BY {row_id} LIMIT {_SAMPLE_ROWS})"
        )
        return int(rows or 0) / max(int(last or start) - start + 1, 1)

    def rows_between(first: str, last: str) -> float:
        start, span = int(first), int(last) - int(first)
        samples = [start, start + span // 3, start + span * 2 // 3]
        return span * sum(map(density, samples)) / len(samples)

    return weigh_ranges(low, str(int(high) + 1), rows_between, middle_number, count)
