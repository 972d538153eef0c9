"""SQLite: ranges of row ids, weighed by looking at a few of them."""

from __future__ import annotations

import logging
from typing import ClassVar

from penstock.connectors.extras import absolute
from penstock.connectors.jdbc.dialect import Database, JdbcDialect, Request, TableEstimate, in_one_piece, split_name
from penstock.connectors.jdbc.keyspace import middle_number, weigh
from penstock.connectors.jdbc.splits import key_conditions, weighted_bounds

log = logging.getLogger("penstock.sources")

_TABLE = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
_LIKE = "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, length(?)) = ?"
_COLUMNS = "SELECT lower(name) FROM pragma_table_xinfo(?)"
_ROW_IDS = ("rowid", "_rowid_", "oid")
"""What a row's id is called; a user's column of such a name hides it."""
_LOOKED_AT = 200
"""Row ids looked at in one place."""
_PIECES_PER_SPLIT = 6


class SqliteDialect(JdbcDialect):
    """SQLite; it keeps no statistics, so a few rows at the ends of ranges are looked at.

    It is asked for no keys: a column of any type may hold values of another, which Spark then converts.
    """

    name: ClassVar[str] = "SQLite"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:sqlite:",)
    has_users: ClassVar[bool] = False
    no_snapshot: ClassVar[str] = "its connections cannot share a snapshot, so rows written meanwhile may be seen or not"

    def located(self, url: str) -> str:
        """Return it with the whole path of the file; databases in memory have none."""
        (prefix,) = self.prefixes
        scheme, path = (
            ("file:", url[len(prefix) + 5 :]) if url.startswith(f"{prefix}file:") else ("", url[len(prefix) :])
        )
        return url if not path or path.startswith((":", "?", "/")) else f"{prefix}{scheme}{absolute(path)}"

    def estimate(self, database: Database, request: Request) -> TableEstimate:
        """Take the width of the first rows, and the density of row ids in a few places."""
        table = request.table
        sizes = " + ".join(f"coalesce(length({request.quote(name)}), 1)" for name in request.columns) or "1"
        ((width,),) = database.rows(f"SELECT avg({sizes}) FROM (SELECT * FROM {table} LIMIT {_LOOKED_AT})")
        row_bytes = float(width or 1)
        row_id = _row_id(database, request)
        if row_id is None:
            return TableEstimate(_LOOKED_AT, row_bytes, in_one_piece, "one piece, as it has no row ids")
        values = _weighed(database, table, row_id, 64)

        def cut(database: Database, count: int) -> list[str | None]:
            weighed = _weighed(database, table, row_id, _PIECES_PER_SPLIT * count)
            return key_conditions(row_id, weighted_bounds(weighed, count), nullable=False)

        return TableEstimate(sum(rows for _, rows in values), row_bytes, cut, "ranges of row ids")

    def has_table(self, database: Database, table: str) -> bool:
        """Look the name up in the catalogue."""
        return bool(database.rows(_TABLE, plain_name(table) or table.strip('"`').rpartition(".")[2]))

    def tables_like(self, database: Database, table: str) -> list[str]:
        """Look names up in the catalogue."""
        schema, name = split_name(table)
        found = database.rows(_LIKE, name, name)
        return [f"{schema}.{one}" if schema else str(one) for (one,) in found]

    def free_writers(self, database: Database) -> int | None:  # noqa: ARG002
        """Return 1: others would have to wait for it."""
        return 1


def _row_id(database: Database, request: Request) -> str | None:
    """Return the name of the row ids of an ordinary table, which number all of its rows; None if there is none.

    SQLite is asked by the very name that the rows are read by: where it is not a name of a row id, the query fails.
    """
    name = plain_name(request.table) if request.is_table else None
    known = database.rows(_TABLE, name) if name else []
    if not known or name is None or not str(known[0][0]).lstrip().upper().startswith("CREATE TABLE"):
        return None
    hidden = {column for (column,) in database.rows(_COLUMNS, name)}
    row_id = next((one for one in _ROW_IDS if one not in hidden), None)
    if row_id is None or not hidden:
        return None
    try:
        database.rows(f"SELECT {row_id} FROM {request.table} LIMIT 0")
    except Exception:  # a table WITHOUT ROWID
        log.debug("%s has no row ids", request.table, exc_info=True)
        return None
    return row_id


def plain_name(table: str) -> str | None:
    """Return what a table of the main database is called, without quotes; None of a name with several parts."""
    text = table.strip()
    quote = text[:1]
    if quote in {'"', "`"} and text.endswith(quote):
        inner = text[1:-1].replace(quote * 2, "\0")
        return None if quote in inner else inner.replace("\0", quote)
    return None if "." in text else text


def _weighed(database: Database, table: str, row_id: str, pieces: int) -> list[tuple[str, float]]:
    ((low, high),) = database.rows(f"SELECT min({row_id}), max({row_id}) FROM {table}")
    if low is None or high is None:
        return []

    def density(at: int) -> float:
        """Return rows per row id right behind a place."""
        ((rows, last),) = database.rows(
            f"SELECT count(*), max({row_id}) FROM"
            f" (SELECT {row_id} FROM {table} WHERE {row_id} >= {at} ORDER BY {row_id} LIMIT {_LOOKED_AT})"
        )
        return int(rows or 0) / max(int(last or at) - at + 1, 1)

    def rows_between(first: str, last: str) -> float:
        start, span = int(first), int(last) - int(first)
        places = [start, start + span // 3, start + span * 2 // 3]
        return span * sum(map(density, places)) / len(places)

    return weigh(low, str(int(high) + 1), rows_between, middle_number, pieces)
