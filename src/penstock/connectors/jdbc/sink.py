"""Tables of databases as sinks: rows are staged, and appear in one transaction."""

from __future__ import annotations

import logging
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.arguments import check_settings, check_table, check_text, columns_of
from penstock.config.options import SOURCES_TIMEOUT
from penstock.connectors.base import Sink, SinkJob, TargetOptions, already_written, checked_parallelism
from penstock.connectors.extras import without_secrets
from penstock.connectors.jdbc.commit import ATTEMPT, TASK, PreparedJdbc, address_of_user, warn_of_staging
from penstock.connectors.jdbc.dialect import share_of
from penstock.connectors.jdbc.ledger import check_ledger, has_token, keeps_tokens_apart, recover_table
from penstock.connectors.jdbc.source import dialect_of, located, masked
from penstock.connectors.sink_checks import is_case_sensitive
from penstock.connectors.table_schema import TableColumns
from penstock.connectors.timeouts import timeout
from penstock.errors import SinkError
from penstock.masking import repr_without_secrets
from penstock.spark.jdbc import JdbcTarget
from penstock.spark.jvm import Bridge, root_cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.jdbc.dialect import JdbcDialect, UniqueKey
    from penstock.spark.jdbc import JdbcConnection

log = logging.getLogger("penstock.sinks")

MODES = ("append", "overwrite", "upsert")


@dataclass(frozen=True)
class JdbcSink(Sink):
    """A table of a database. All rows of a job appear in one transaction, those of a task that ran twice once.

    Parameters
    ----------
    url
        The database, such as ``jdbc:postgresql://host/db``.
    table
        The table; made if it does not exist.
    properties
        Options of Spark's writer: ``user``, ``password``, ``driver``, ``batchsize`` ... With ``isolationLevel=NONE``
        each task writes in a transaction all the same: without, a failed attempt would leave some of its rows.
    mode
        ``append``, ``overwrite`` or ``upsert``.
    key
        For ``upsert``, the columns that tell rows apart, which all rows have; the table has a primary key or unique
        index on them. Where that allows nulls and holds them for different, rows with a null in one are added.
    token
        A name for what is written. Once it is in the table, a job that would write it again does nothing: a rerun
        after a driver that died is safe, whatever it had reached.
    parallelism
        The number of writing tasks; if None, that of the upstream.
    max_connections
        The most tasks that write at a time, each by a connection of its own; the driver has one more. If None, half of
        the connections that the database has free.
    """

    url: str
    table: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    mode: str = "append"
    key: str | Sequence[str] = ()
    token: str | None = None
    parallelism: int | None = None
    max_connections: int | None = None

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_text(self.url, "JdbcSink", "a URL, which is a text such as jdbc:postgresql://host/database")
        check_table(self.table, "JdbcSink")
        check_settings(self.properties, f"the properties of table {self.table}")
        object.__setattr__(self, "key", columns_of(self.key, f"key of sink {self.table}"))
        if self.mode not in MODES:
            raise SinkError(f"mode {self.mode!r} is not known", hint=f"give one of {', '.join(MODES)}")
        if (self.mode == "upsert") != bool(self.key):
            raise SinkError(
                f"mode {self.mode!r} with key {tuple(self.key)}", hint="mode upsert needs a key; other modes take none"
            )
        if dialect_of(self.url) is None:
            raise SinkError(
                f"tables of {masked(self.url)} cannot be written",
                hint="PostgreSQL, MySQL, MariaDB (by a jdbc:mysql: URL) and SQLite are known",
            )
        for value in (self.parallelism, self.max_connections):
            if value is not None:
                checked_parallelism(value, f"sink {self.table}")
        object.__setattr__(self, "url", located(self.url))

    @property
    def name(self) -> str:
        """The table."""
        return self.table

    @property
    def place(self) -> str:
        """The table of the database."""
        return f"{self.table} of {masked(self.url)}"

    @property
    def adds(self) -> bool:
        """Whether the mode keeps the rows that are there."""
        return self.mode != "overwrite"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The URL as it is, and the properties."""
        return {address_of_user(masked(self.url), self.properties): {**self.properties, "url": self.url}}

    def target_options(self, spark: SparkSession) -> TargetOptions:
        """Return the properties, which are the options of Spark's writer."""
        del spark
        return TargetOptions(self.properties)

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way."""
        address = address_of_user(masked(self.url), self.properties)
        recover_table(access, masked(self.url), address, self.table)

    def open(self, spark: SparkSession) -> SinkJob:
        """Reach the database, and look whether the job's token is there already."""
        dialect = dialect_of(self.url)
        assert dialect is not None
        target = JdbcTarget(Bridge(spark), {**self.properties, "url": self.url, "dbtable": self.table})
        patience = {**dialect.asking_waits(timeout()), **self.properties}  # of the questions below, not of the commit
        try:
            connection = JdbcTarget(Bridge(spark), {**patience, "url": self.url, "dbtable": self.table}).connect()
        except Exception as error:
            raise SinkError(
                f"table {self.table} of {masked(self.url)} cannot be written",
                cause=masked(root_cause(error)),
                hint="check the URL, user and password, that spark.jars holds the driver, and that the database "
                f"answers within {timeout():g} seconds ({SOURCES_TIMEOUT.key})",
            ) from error
        with connection:
            exists = dialect.has_table(connection, self.table)
            if self.mode == "upsert" and not exists:
                raise SinkError(f"table {self.table} does not exist", hint="upsert needs a table with a unique index")
            columns = list(connection.column_types(f"SELECT * FROM {self.table} WHERE 1 = 0")) if exists else None
            most = self.max_connections or share_of(dialect.free_writers(connection))
            keys = dialect.upsert_keys(connection, self.table) if self.mode == "upsert" else None
            has_ledger = self._has_ledger(dialect, connection)
            done = self.token is not None and has_token(dialect, connection, self.table, self.token)
        if done:
            log.warning("%s holds %s already, nothing is written", self.table, self.token)
        known = None if columns is None else TableColumns(columns, f"table {self.table}", is_case_sensitive(spark))
        return _JdbcSinkJob(self, dialect, target, known, keys, done=done, most=most, has_ledger=has_ledger)

    def _has_ledger(self, dialect: JdbcDialect, database: JdbcConnection) -> bool:
        """Whether the user may write to the ledger, which a token needs."""
        try:
            check_ledger(dialect, database)
        except Exception as error:
            if self.token is not None:
                raise SinkError.no_ledger(
                    self.table, masked(self.url), masked(root_cause(error)), self.token
                ) from error
            log.info("%s is written without a receipt", self.table, exc_info=True)
            return False
        if self.token is not None and not keeps_tokens_apart(database):
            raise SinkError.ledger_without_key(self.table, masked(self.url), self.token)
        return True


class _JdbcSinkJob(SinkJob):
    """Writes into a table of its own, and copies it over."""

    calls_python = False

    def __init__(
        self,
        sink: JdbcSink,
        dialect: JdbcDialect,
        target: JdbcTarget,
        known: TableColumns | None,
        keys: list[UniqueKey] | None,
        *,
        done: bool,
        most: int | None,
        has_ledger: bool,
    ) -> None:
        self._sink = sink
        self._dialect = dialect
        self._target = target
        self._known = known
        self._keys = keys
        self._done = done
        self._most = most
        self._has_ledger = has_ledger
        schema, dot, table = sink.table.rpartition(".")
        stem = f"{schema}{dot}penstock_{re.sub(r'[^a-z0-9]', '', table.lower())[:20]}_"
        # Two runs of one token may go on at a time, each with its own table; the first to commit removes all of them.
        named = uuid.uuid5(uuid.NAMESPACE_OID, f"{sink.table} {sink.token}").hex[:12]
        self._of_token = f"{stem}{named}_" if sink.token is not None else None
        self._staging = f"{self._of_token or stem}{uuid.uuid4().hex[:12]}"
        self._columns: list[str] = []
        self._names: list[str] = []

    def check(self, schema: StructType) -> None:
        if self._known is not None and not self._done:
            names = self._known.of(schema)
            if self._sink.mode == "upsert":
                self._check_key(frozenset(name.lower() for name in names))

    def _check_key(self, written: frozenset[str]) -> None:
        """Refuse an upsert that would add rows that are there, or replace rows of other keys."""
        table, key = self._sink.table, frozenset(name.lower() for name in self._sink.key)
        missing = [name for name in self._sink.key if name.lower() not in written]
        if missing:
            raise SinkError.no_key_column(table, missing[0])
        if self._keys is None:
            return
        if not any(one.is_whole and one.columns == key for one in self._keys):
            raise SinkError.no_unique_index(table, list(self._sink.key), self._dialect.name)
        others = [sorted(one.columns) for one in self._keys if one.may_replace_another(key, written)]
        if others:
            raise SinkError.other_unique_index(table, others[0], self._dialect.name)

    @property
    def nothing_to_write(self) -> str | None:
        return already_written(str(self._sink.token)) if self._done else None

    def write(self, df: DataFrame) -> None:
        if self._done:
            self._drop()
            return
        if self._known is not None:
            df = df.toDF(*self._known.of(df.schema))
        self._names = df.columns
        self._columns = [self._target.quoted(name) for name in self._names]
        columns = f"{self._target.columns(df)}, {TASK} int, {ATTEMPT} bigint"
        with self._target.connect() as database:
            database.run(f"CREATE TABLE {self._staging} ({columns}) {self._dialect.transactional}".rstrip())
        try:
            self._target.append(self._staging, df, (TASK, ATTEMPT), self._most)
        except Exception:
            if not self._other_has_committed():
                raise
            self._done = True
            self._drop()

    def _other_has_committed(self) -> bool:
        """Whether another run has written the token meanwhile, so that what went wrong here does not matter."""
        if self._sink.token is None:
            return False
        try:
            with self._target.connect() as database:
                found = has_token(self._dialect, database, self._sink.table, self._sink.token)
        except Exception:  # the database is gone: what went wrong first is what to tell
            log.debug("the ledger could not be asked", exc_info=True)
            return False
        if found:
            log.warning("another run has written %s to %s", self._sink.token, self._sink.table)
        return found

    def prepare(self) -> Prepared:
        """Make the table if it is not there (some databases commit when tables are made), and tell what to copy."""
        sink = self._sink
        written = {name.lower(): name for name in self._names} | {name: name for name in self._names}
        key = [
            self._target.quoted(written.get(one) or written.get(one.lower(), one))
            for one in columns_of(sink.key, sink.table)
        ]
        # By a receipt the database tells later whether the job has committed, should the answer to COMMIT be lost.
        receipt = f"job {uuid.uuid4().hex}" if self._has_ledger and sink.token is None else None
        record = PreparedJdbc(
            masked(sink.url),
            sink.table,
            sink.mode,
            tuple(self._columns),
            tuple(key),
            "" if self._done else self._staging,
            sink.token,
            receipt,
            self._of_token,
            without_secrets(sink.properties),
        )
        if not self._done:
            with self._target.connect() as database:
                record.make(database, self._dialect)
        return record

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The URL as it is, and the properties."""
        return self._sink.secrets

    def abort(self) -> None:
        if self._columns:
            self._drop()

    def refresh(self) -> None:
        """Let cached readers see what was written, as Spark does after a write of its own."""
        if self._done:
            return
        try:
            self._target.refresh(self._sink.table)
        except Exception:
            log.warning("cached readers of %s could not be refreshed", self._sink.table, exc_info=True)

    def _drop(self) -> None:
        """Remove the staged rows."""
        try:
            with self._target.connect() as database:
                database.run(f"DROP TABLE IF EXISTS {self._staging}")
        except Exception as error:  # noqa: BLE001 - the job ends all the same
            warn_of_staging(self._staging, masked(self._sink.url), error)
