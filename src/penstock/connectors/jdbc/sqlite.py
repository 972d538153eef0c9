"""SQLite: splits by ranges of row ids, balanced by sampling."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from penstock.connectors.core.extras import absolute
from penstock.connectors.jdbc.dialect import JdbcDialect, Request, TableEstimate, single_split
from penstock.connectors.jdbc.splits import key_conditions, middle_number, weigh, weighted_bounds

if TYPE_CHECKING:
    from penstock.spark.io.jdbc import JdbcConnection

log = logging.getLogger("penstock.sources")

_TABLE = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
_LIKE = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, length(?)) = ? AND ? IS NOT NULL"
_COLUMNS = "SELECT lower(name) FROM pragma_table_xinfo(?)"
_ROW_IDS = ("rowid", "_rowid_", "oid")
"""Names of the row id; a user's column of the same name hides it."""
_SAMPLE_ROWS = 200
"""Rows per sample."""
_RANGES_PER_SPLIT = 6


class SqliteDialect(JdbcDialect):
    """SQLite; without statistics, a few rows of each range are sampled.

    Keys are not pushed down: a column may have values of another type, which Spark converts.
    """

    name: ClassVar[str] = "SQLite"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:sqlite:",)
    has_users: ClassVar[bool] = False
    prefix_query: ClassVar[str] = _LIKE
    no_snapshot_reason: ClassVar[str] = (
        "its connections cannot share a snapshot, so rows written meanwhile may be seen or not"
    )

    def with_absolute_path(self, url: str) -> str:
        """Return a URL with the absolute path of the file; URLs of in-memory databases are unchanged."""
        (prefix,) = self.prefixes
        scheme = "file:" if url.startswith(f"{prefix}file:") else ""
        path = url.removeprefix(prefix + scheme)
        return url if not path or path.startswith((":", "?", "/")) else f"{prefix}{scheme}{absolute(path)}"

    def estimate(self, database: JdbcConnection, request: Request) -> TableEstimate:
        """Return an estimate from the width of the first rows, and the density of row ids in samples."""
        table = request.table
        sizes = " + ".join(f"coalesce(length({request.quote(name)}), 1)" for name in request.columns) or "1"
        ((width,),) = database.rows(f"SELECT avg({sizes}) FROM (SELECT * FROM {table} LIMIT {_SAMPLE_ROWS})")
        row_bytes = float(width or 1)
        row_id = _row_id(database, request)
        if row_id is None:
            return TableEstimate(_SAMPLE_ROWS, row_bytes, single_split, "a single split, as it has no row ids")
        values = _weigh_ranges(database, table, row_id, 64)

        def split_conditions(database: JdbcConnection, count: int) -> list[str | None]:
            weighed = _weigh_ranges(database, table, row_id, _RANGES_PER_SPLIT * count)
            return key_conditions(row_id, weighted_bounds(weighed, count), nullable=False)

        return TableEstimate(sum(rows for _, rows in values), row_bytes, split_conditions, "ranges of row ids")

    def has_table(self, database: JdbcConnection, table: str) -> bool:
        """Return whether the catalogue has the table."""
        return bool(database.rows(_TABLE, plain_name(table) or table.strip('"`').rpartition(".")[2]))

    def free_writers(self, database: JdbcConnection) -> int | None:  # noqa: ARG002
        """Return 1: SQLite allows a single writer at a time."""
        return 1


def _row_id(database: JdbcConnection, request: Request) -> str | None:
    """Return the name of the row id of an ordinary table; None for views and for tables without row ids.

    The name is tested with a query, which fails if it is not a row id.
    """
    name = plain_name(request.table) if request.is_table else None
    definitions = database.rows(_TABLE, name) if name else []
    if not definitions or name is None or not str(definitions[0][0]).lstrip().upper().startswith("CREATE TABLE"):
        return None
    hidden = {column for (column,) in database.rows(_COLUMNS, name)}
    row_id = next((candidate for candidate in _ROW_IDS if candidate not in hidden), None)
    if row_id is None or not hidden:
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


def _weigh_ranges(database: JdbcConnection, table: str, row_id: str, count: int) -> list[tuple[str, float]]:
    ((low, high),) = database.rows(f"SELECT min({row_id}), max({row_id}) FROM {table}")
    if low is None or high is None:
        return []

    def density(at: int) -> float:
        """Return the rows per row id in a sample from a row id on."""
        ((rows, last),) = database.rows(
            f"SELECT count(*), max({row_id}) FROM"
            f" (SELECT {row_id} FROM {table} WHERE {row_id} >= {at} ORDER BY {row_id} LIMIT {_SAMPLE_ROWS})"
        )
        return int(rows or 0) / max(int(last or at) - at + 1, 1)

    def rows_between(first: str, last: str) -> float:
        start, span = int(first), int(last) - int(first)
        samples = [start, start + span // 3, start + span * 2 // 3]
        return span * sum(map(density, samples)) / len(samples)

    return weigh(low, str(int(high) + 1), rows_between, middle_number, count)
