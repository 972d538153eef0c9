"""What a job has ready for a table of a database: staged rows, which one transaction copies."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Prepared
from penstock.connectors.extras import with_secrets
from penstock.connectors.jdbc.dialect import literal
from penstock.connectors.jdbc.ledger import LEDGER, has_token, point, unpoint
from penstock.connectors.jdbc.source import dialect_of
from penstock.spark.jdbc import JdbcTarget

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.connectors.jdbc.dialect import JdbcDialect
    from penstock.spark.jdbc import JdbcConnection

log = logging.getLogger("penstock.sinks")

TASK, ATTEMPT = "penstock_task", "penstock_attempt"


@dataclass(frozen=True)
class PreparedJdbc(Prepared):
    """Rows of a staging table that are not in their table yet.

    Parameters
    ----------
    database
        The URL, without passwords.
    table
        The table.
    mode
        ``append``, ``overwrite`` or ``upsert``.
    columns, key
        Columns, and those of the key of an upsert, quoted.
    staging
        Where the rows are; empty text where the token is in the table already.
    token
        The name of what is written, if it has one.
    receipt
        What the ledger tells the commit by where there is no token, and other sinks.
    of_token
        How the names of staging tables of all runs of the token begin.
    properties
        Options of Spark's writer, but for secrets.
    """

    kind: ClassVar[str] = "jdbc"
    is_reversible: ClassVar[bool] = False

    database: str
    table: str
    mode: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    staging: str
    token: str | None
    receipt: str | None
    of_token: str | None
    properties: tuple[tuple[str, str], ...]

    @property
    def target(self) -> str:
        """The table and its database."""
        return f"{self.table} of {self.database}"

    @property
    def address(self) -> str:
        """The database."""
        return self.database

    @property
    def together(self) -> str:
        """The database: its sinks share a transaction."""
        return self.database

    def beside_others(self, mark: str) -> PreparedJdbc:
        """Return it with a receipt, if it has no token: else nobody could tell later whether it has committed."""
        return self if self.token is not None else replace(self, receipt=f"job {mark}")

    @property
    def _entry(self) -> str | None:
        return self.token or self.receipt

    def ready(self, access: Access) -> None:
        """Copy the rows in a transaction that only wants its COMMIT: what the database refuses, it refuses here.

        Sinks of one database share it, and so commit together; they would wait for each other's locks for ever.
        """
        if not self.staging:
            return
        shared = access.open_transactions.get(self.database)
        database = shared or self._connect(access)
        if shared is None:
            access.open_transactions[self.database] = database
            if self._entry is not None:  # makes the ledger, while no transaction is open
                has_token(self._dialect, database, self.table, self._entry)
            database.begin()
        try:
            self._copy(database)
        except Exception:
            access.close()
            if not self.is_committed(access):
                raise
            log.warning("another run has written %s to %s", self.token, self.table)

    def commit(self, access: Access) -> None:
        """Commit the transaction that is `ready`, or do all of it."""
        if not self.staging:
            return
        begun = access.open_transactions.pop(self.database, None)
        if begun is not None:
            with begun:
                begun.commit()
            return
        if self.is_committed(access):
            return
        with self._connect(access) as database:
            self.make(database, self._dialect)
            database.begin()
            self._copy(database)
            database.commit()

    def is_committed(self, access: Access) -> bool:
        """Whether the ledger has the job; a transaction of a process that has died meanwhile is waited for."""
        if not self.staging:
            return True
        if self._entry is None:
            return False
        with self._connect(access) as database:
            if has_token(self._dialect, database, self.table, self._entry):
                return True
            database.begin()
            try:
                database.run(self._insertion)  # waits until one that has inserted it ends
            except Exception as error:  # noqa: BLE001 - raised below, unless the row is there
                refused = error
            else:
                return False
        with self._connect(access) as database:
            if has_token(self._dialect, database, self.table, self._entry):
                return True
        raise refused  # a commit may still come, so neither answer would be true

    def undo(self, access: Access) -> None:
        """Drop the staged rows."""
        self._drop(access)

    def finish(self, access: Access) -> None:
        """Drop the staged rows, those of other runs of the token too, and the receipt."""
        self._drop(access, also_of_token=True)
        if self.receipt is not None:
            with suppress(Exception), self._connect(access) as database:
                database.run(f"DELETE FROM {LEDGER} WHERE token = {literal(self.receipt)}")

    def point(self, access: Access, journal: str) -> None:
        """Put a row into a table of journals."""
        with self._connect(access) as database:
            point(self._dialect, database, self.table, journal)

    def unpoint(self, access: Access, journal: str) -> None:
        """Remove the row."""
        with self._connect(access) as database:
            unpoint(database, journal)

    def make(self, database: JdbcConnection, dialect: JdbcDialect) -> None:
        """Make the table if it is not there."""
        if not dialect.has_table(database, self.table):
            columns = ", ".join(self.columns)
            made = f"CREATE TABLE IF NOT EXISTS {self.table}"
            database.run(f"{made} AS SELECT {columns} FROM {self.staging} WHERE 1 = 0")

    @property
    def _insertion(self) -> str:
        return f"INSERT INTO {LEDGER} VALUES ({literal(self.table)}, {literal(self._entry or '')})"

    def _copy(self, database: JdbcConnection) -> None:
        if self._entry is not None:
            database.run(self._insertion)
        if self.mode == "overwrite":
            database.run(f"DELETE FROM {self.table}")
        database.run(self._dialect.copy(self.staging, self.table, self.columns, self.key, (TASK, ATTEMPT)))

    def _drop(self, access: Access, *, also_of_token: bool = False) -> None:
        with suppress(Exception), self._connect(access) as database:
            wanted = self.of_token if also_of_token else None
            others = [] if wanted is None else self._dialect.tables_like(database, wanted)
            for table in sorted({self.staging, *others} - {""}):
                database.run(f"DROP TABLE IF EXISTS {table}")

    @property
    def _dialect(self) -> JdbcDialect:
        found = dialect_of(self.database)
        assert found is not None
        return found

    def _connect(self, access: Access) -> JdbcConnection:
        given = access.secrets.get(self.database)
        options = {"url": self.database, "dbtable": self.table, **with_secrets(self.properties, given)}
        return JdbcTarget(access.bridge, options).connect()
