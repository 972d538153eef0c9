"""What Penstock keeps in a database that it writes to: which tokens it holds, and where the journals of commits lie."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.commit import Direction, recover
from penstock.commit.owner import tag_is_alive
from penstock.connectors.jdbc.dialect import literal
from penstock.connectors.jdbc.source import dialect_of
from penstock.errors import CommitError
from penstock.spark.jdbc import JdbcTarget

if TYPE_CHECKING:
    from penstock.commit import Access
    from penstock.connectors.jdbc.dialect import JdbcDialect
    from penstock.spark.jdbc import JdbcConnection

log = logging.getLogger("penstock.sinks")

LEDGER, _JOURNALS = "penstock_commits", "penstock_journals"


def has_token(dialect: JdbcDialect, database: JdbcConnection, table: str, token: str) -> bool:
    """Whether a table's token is in the ledger, which is made if it is not there."""
    if not dialect.has_table(database, LEDGER):
        database.run(
            f"CREATE TABLE IF NOT EXISTS {LEDGER}"
            " (target varchar(200) NOT NULL, token varchar(200) NOT NULL, PRIMARY KEY (target, token))"
        )
    return bool(database.rows(f"SELECT 1 FROM {LEDGER} WHERE target = ? AND token = ?", table, token))


def point(dialect: JdbcDialect, database: JdbcConnection, table: str, journal: str) -> None:
    """Put a row into the table of journals, which is made if it is not there."""
    if not dialect.has_table(database, _JOURNALS):
        columns = "target varchar(200) NOT NULL, journal varchar(2000) NOT NULL"
        database.run(f"CREATE TABLE IF NOT EXISTS {_JOURNALS} ({columns})")
    database.run(f"INSERT INTO {_JOURNALS} VALUES ({literal(table)}, {literal(journal)})")


def unpoint(database: JdbcConnection, journal: str) -> None:
    """Remove the rows of a journal."""
    database.run(f"DELETE FROM {_JOURNALS} WHERE journal = {literal(journal)}")


def recover_table(access: Access, database: str, table: str) -> None:
    """Recover the commits that a dead process has left half-way at a table; called before it is written again."""
    dialect = dialect_of(database)
    assert dialect is not None
    target = JdbcTarget(access.bridge, {"dbtable": table, **access.secrets[database]})
    try:
        with target.connect() as connection:
            if not dialect.has_table(connection, _JOURNALS):
                return
            found = connection.rows(f"SELECT DISTINCT journal FROM {_JOURNALS} WHERE target = ?", table)
    except CommitError:
        raise
    except Exception:  # `JdbcSink.open` tells what is wrong
        log.debug("%s cannot be asked for journals", table, exc_info=True)
        return
    for (journal,) in found:
        gone = recover(access, str(journal)).direction is Direction.GONE
        if gone and tag_is_alive(str(journal)) is False:  # its process died before it wrote the journal
            with target.connect() as connection:
                unpoint(connection, str(journal))
