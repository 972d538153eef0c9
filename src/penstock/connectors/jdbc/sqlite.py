"""SQLite: ranges of row ids, weighed by looking at a few of them."""

from __future__ import annotations

from typing import ClassVar

from penstock.connectors.jdbc.dialect import Database, JdbcDialect, Request, TableEstimate, in_one_piece
from penstock.connectors.jdbc.keyspace import middle_number, weigh
from penstock.connectors.jdbc.splits import key_conditions, weighted_bounds

_TABLE = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
_LOOKED_AT = 200
"""Row ids looked at in one place."""
_PIECES_PER_SPLIT = 6


class SqliteDialect(JdbcDialect):
    """SQLite; it keeps no statistics, so a few rows at the ends of ranges are looked at."""

    name: ClassVar[str] = "SQLite"
    prefixes: ClassVar[tuple[str, ...]] = ("jdbc:sqlite:",)
    no_snapshot: ClassVar[str] = "its connections cannot share a snapshot, so rows written meanwhile may be seen or not"

    def estimate(self, database: Database, request: Request) -> TableEstimate:
        """Take the width of the first rows, and the density of row ids in a few places."""
        table = request.table
        sizes = " + ".join(f"coalesce(length({request.quote(name)}), 1)" for name in request.columns) or "1"
        ((width,),) = database.rows(f"SELECT avg({sizes}) FROM (SELECT * FROM {table} LIMIT {_LOOKED_AT})")
        row_bytes = float(width or 1)
        name = table.strip('"`').rpartition(".")[2]
        known = database.rows(_TABLE, name) if request.is_table else []
        if not known or "WITHOUT ROWID" in str(known[0][0]).upper():
            return TableEstimate(_LOOKED_AT, row_bytes, in_one_piece, "one piece, as it has no row ids")
        values = _weighed(database, table, 64)

        def cut(database: Database, count: int) -> list[str | None]:
            weighed = _weighed(database, table, _PIECES_PER_SPLIT * count)
            return key_conditions("rowid", weighted_bounds(weighed, count), nullable=False)

        return TableEstimate(sum(rows for _, rows in values), row_bytes, cut, "ranges of row ids")

    def has_table(self, database: Database, table: str) -> bool:
        """Look the name up in the catalogue."""
        return bool(database.rows(_TABLE, table.strip('"`').rpartition(".")[2]))

    def mark_attempts(self, table: str, task: str, attempt: str) -> list[str]:
        """Mark rows with their task; with one writer at a time there is nothing to tell attempts by."""
        return [f"ALTER TABLE {table} ADD {task} int", f"ALTER TABLE {table} ADD {attempt} int DEFAULT 0"]

    def free_writers(self, database: Database) -> int | None:  # noqa: ARG002
        """Return 1: others would have to wait for it."""
        return 1


def _weighed(database: Database, table: str, pieces: int) -> list[tuple[str, float]]:
    ((low, high),) = database.rows(f"SELECT min(rowid), max(rowid) FROM {table}")
    if low is None or high is None:
        return []

    def density(at: int) -> float:
        """Return rows per row id right behind a place."""
        ((rows, last),) = database.rows(
            "SELECT count(*), max(rowid) FROM"
            f" (SELECT rowid FROM {table} WHERE rowid >= {at} ORDER BY rowid LIMIT {_LOOKED_AT})"
        )
        return int(rows or 0) / max(int(last or at) - at + 1, 1)

    def rows_between(first: str, last: str) -> float:
        start, span = int(first), int(last) - int(first)
        places = [start, start + span // 3, start + span * 2 // 3]
        return span * sum(map(density, places)) / len(places)

    return weigh(low, str(int(high) + 1), rows_between, middle_number, pieces)
