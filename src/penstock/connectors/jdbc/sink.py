"""Sink of database tables: rows are staged in a table, and become visible in a single transaction."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.arguments import check_settings, check_table, check_text, columns_of
from penstock.base.masking import repr_without_secrets
from penstock.config.options import SOURCES_TIMEOUT
from penstock.connectors.core.base import Sink, SinkJob, TargetOptions, already_written, check_positive
from penstock.connectors.core.extras import without_secrets
from penstock.connectors.core.sink_checks import is_case_sensitive
from penstock.connectors.core.timeouts import timeout
from penstock.connectors.jdbc.commit import (
    ATTEMPT,
    TASK,
    PreparedJdbc,
    check_ledger,
    has_token,
    has_unique_key,
    recover_table,
    secrets_key_of,
    warn_not_dropped,
)
from penstock.connectors.jdbc.dialect import default_connections
from penstock.connectors.jdbc.source import dialect_of, masked, with_absolute_path
from penstock.connectors.tables.commit import check_mode
from penstock.connectors.tables.table_schema import TableColumns
from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge, root_cause
from penstock.spark.io.jdbc import JdbcTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.jdbc.dialect import JdbcDialect, UniqueKey
    from penstock.spark.io.jdbc import JdbcConnection

log = logging.getLogger("penstock.sinks")


@dataclass(frozen=True)
class JdbcSink(Sink):
    """A table of a database. All rows of a job become visible in a single transaction, each once.

    >>> JdbcSink("jdbc:postgresql://db/shop", "orders", {"user": "etl"}, mode="upsert", key="id").key
    ('id',)

    Parameters
    ----------
    url
        The database, such as ``jdbc:postgresql://host/db``.
    table
        The table; created if it does not exist.
    properties
        Options of Spark's writer: ``user``, ``password``, ``driver``, ``batchsize`` ... Even with
        ``isolationLevel=NONE`` each task writes in a transaction, so that a failed attempt leaves no rows.
    mode
        ``append``, ``overwrite`` or ``upsert``.
    key
        The key columns of an ``upsert``. The table needs a primary key or unique index on them. If the index allows
        nulls and treats them as distinct, rows with a null in the key are added.
    token
        An idempotency token for the rows. Once the table has it, a job with the same token writes nothing, so a job
        whose driver died can be repeated safely.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    max_connections
        The maximum number of tasks that write concurrently, each with its own connection, in addition to that of the
        driver. If None, half of the free connections of the database.
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
        check_mode(self.mode, self.key)
        if dialect_of(self.url) is None:
            raise SinkError(
                f"tables of {masked(self.url)} cannot be written",
                hint="supported are PostgreSQL, MySQL, MariaDB (by a jdbc:mysql: URL) and SQLite",
            )
        check_positive(f"sink {self.table}", self.parallelism, self.max_connections)
        object.__setattr__(self, "url", with_absolute_path(self.url))

    @property
    def name(self) -> str:
        """The table."""
        return self.table

    @property
    def location(self) -> str:
        """The table and the database."""
        return f"{self.table} of {masked(self.url)}"

    @property
    def adds(self) -> bool:
        """Whether the mode is not ``overwrite``; an upsert replaces only single rows."""
        return self.mode != "overwrite"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The unmasked URL and the properties."""
        return {secrets_key_of(masked(self.url), self.properties): {**self.properties, "url": self.url}}

    def target_options(self, spark: SparkSession) -> TargetOptions:  # noqa: ARG002
        """Return the properties, which are the options of Spark's writer."""
        return TargetOptions(self.properties)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        secrets_key = secrets_key_of(masked(self.url), self.properties)
        recover_table(access, masked(self.url), secrets_key, self.table)

    def open(self, spark: SparkSession) -> SinkJob:
        """Connect to the database, check the table, and detect whether it already has the job's token."""
        dialect = dialect_of(self.url)
        assert dialect is not None
        bridge, options = Bridge(spark), {**self.properties, "url": self.url, "dbtable": self.table}
        try:  # timeouts are for checks, not for the commit
            connection = JdbcTarget(bridge, {**dialect.query_timeouts(timeout()), **options}).connect()
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
            connections = self.max_connections or default_connections(dialect.free_writers(connection))
            unique_keys = dialect.upsert_keys(connection, self.table) if self.mode == "upsert" else None
            can_write_ledger = self._can_write_ledger(dialect, connection)
            is_committed = self.token is not None and has_token(dialect, connection, self.table, self.token)
        if is_committed:
            log.warning("%s already has the rows of token %s, nothing is written", self.table, self.token)
        existing = None if columns is None else TableColumns(columns, f"table {self.table}", is_case_sensitive(spark))
        target = JdbcTarget(bridge, options)
        return _JdbcSinkJob(self, dialect, target, existing, unique_keys, is_committed, connections, can_write_ledger)

    def _can_write_ledger(self, dialect: JdbcDialect, database: JdbcConnection) -> bool:
        """Whether the user can write to the ledger; for a token, raise `SinkError` if not, or if tokens may repeat."""
        try:
            check_ledger(dialect, database)
        except Exception as error:
            if self.token is not None:
                raise SinkError.no_ledger(
                    self.table, masked(self.url), masked(root_cause(error)), self.token
                ) from error
            log.info("%s is written without a receipt in penstock_commits", self.table, exc_info=True)
            return False
        if self.token is not None and not has_unique_key(database):
            target = f"table {self.table} of {masked(self.url)}"
            raise SinkError(
                f"{target} cannot be written with the token {self.token!r}: two runs could write its rows",
                cause="the table penstock_commits has no unique key of target and token",
                hint="CREATE UNIQUE INDEX penstock_commits_key ON penstock_commits (target, token)",
            )
        return True


@dataclass(eq=False)
class _JdbcSinkJob(SinkJob):
    """Write into a staging table that the commit copies into the target.

    `existing` are the columns of the target, None if it does not exist. `unique_keys` are the unique indexes that
    affect an upsert; None if only that of its key does. `is_committed` says whether the target has the token already.
    `connections` is the maximum of concurrent writers (None: no limit). `_columns` are the written `_names`, quoted.
    """

    calls_python = False

    sink: JdbcSink
    dialect: JdbcDialect
    target: JdbcTarget
    existing: TableColumns | None
    unique_keys: list[UniqueKey] | None
    is_committed: bool
    connections: int | None
    can_write_ledger: bool
    _columns: list[str] = field(default_factory=list, init=False)
    _names: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        schema, dot, table = self.sink.table.rpartition(".")
        stem = f"{schema}{dot}penstock_{re.sub(r'[^a-z0-9]', '', table.lower())[:20]}_"
        # Runs with the same token may overlap, each with a separate staging table; the first commit drops all of them.
        token_hash = uuid.uuid5(uuid.NAMESPACE_OID, f"{self.sink.table} {self.sink.token}").hex[:12]
        self._token_prefix = f"{stem}{token_hash}_" if self.sink.token is not None else None
        self._staging = f"{self._token_prefix or stem}{uuid.uuid4().hex[:12]}"

    def check(self, schema: StructType) -> None:
        if self.existing is not None and not self.is_committed:
            names = self.existing.resolve(schema)
            if self.sink.mode == "upsert":
                self._check_key(frozenset(name.lower() for name in names))

    def _check_key(self, row_columns: frozenset[str]) -> None:
        """Reject an upsert that would duplicate rows, or replace rows with other keys; names are in lower case."""
        table, key = self.sink.table, frozenset(name.lower() for name in self.sink.key)
        missing = [name for name in self.sink.key if name.lower() not in row_columns]
        if missing:
            raise SinkError(
                f"the rows for table {table} have no column {missing[0]}",
                cause="it is a key column, by which mode upsert finds the rows that it replaces",
                hint='add the column, or use mode="append"',
            )
        if self.unique_keys is None:
            return
        if not any(index.is_whole and index.columns == key for index in self.unique_keys):
            columns, name = ", ".join(self.sink.key), self.dialect.name
            raise SinkError(
                f"table {table} has no unique index on exactly {columns}",
                cause=f"{name} replaces only rows that are equal in a unique index, and would insert all others",
                hint=f"CREATE UNIQUE INDEX ... ON {table} ({columns}), or pass the key of an existing unique index",
            )
        conflicting = [index for index in self.unique_keys if index.may_replace_another(key, row_columns)]
        if conflicting:
            columns = ", ".join(name or "an expression" for name in sorted(conflicting[0].columns))
            name = self.dialect.name
            raise SinkError(
                f"rows of table {table} cannot be replaced by the key alone: it has a unique index on {columns}",
                cause=f"{name} replaces the row that is equal in any unique index, so other rows could be removed",
                hint="drop the index, or write the rows to a separate table and merge them in SQL",
            )

    @property
    def nothing_to_write(self) -> str | None:
        return already_written(str(self.sink.token)) if self.is_committed else None

    def write(self, df: DataFrame) -> None:
        if self.is_committed:
            self._drop()
            return
        if self.existing is not None:
            df = df.toDF(*self.existing.resolve(df.schema))
        self._names = df.columns
        self._columns = [self.target.quoted(name) for name in self._names]
        columns = f"{self.target.columns(df)}, {TASK} int, {ATTEMPT} bigint"
        with self.target.connect() as database:
            database.run(f"CREATE TABLE {self._staging} ({columns}) {self.dialect.transactional_suffix}".rstrip())
        try:
            self.target.append(self._staging, df, (TASK, ATTEMPT), self.connections)
        except Exception:
            if not self._has_another_run_committed():
                raise
            self.is_committed = True
            self._drop()

    def _has_another_run_committed(self) -> bool:
        """Whether another run has committed the token meanwhile, so that this run has nothing left to do."""
        if self.sink.token is None:
            return False
        try:
            with self.target.connect() as database:
                is_committed = has_token(self.dialect, database, self.sink.table, self.sink.token)
        except Exception:  # the database is unreachable: the caller raises the error of the write
            log.debug("the ledger could not be read", exc_info=True)
            return False
        if is_committed:
            log.warning("another run has written token %s to %s", self.sink.token, self.sink.table)
        return is_committed

    def prepare(self) -> Prepared:
        """Create the target if needed (before the transaction, as DDL may commit it), and return the commit record."""
        sink = self.sink
        spellings = {name.lower(): name for name in self._names} | {name: name for name in self._names}
        key = [  # in the spelling of the table's columns: an exact match first, else ignoring case
            self.target.quoted(spellings.get(name) or spellings.get(name.lower(), name))
            for name in columns_of(sink.key, sink.table)
        ]
        # The receipt in the ledger shows whether the job has committed if the response to COMMIT is lost.
        receipt = f"job {uuid.uuid4().hex}" if self.can_write_ledger and sink.token is None else None
        record = PreparedJdbc(
            masked(sink.url),
            sink.table,
            sink.mode,
            tuple(self._columns),
            tuple(key),
            "" if self.is_committed else self._staging,
            sink.token,
            receipt,
            self._token_prefix,
            without_secrets(sink.properties),
        )
        if not self.is_committed:
            with self.target.connect() as database:
                record.create_table(database, self.dialect)
        return record

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        return self.sink.secrets

    def abort(self) -> None:
        if self._columns:
            self._drop()

    def refresh(self) -> None:
        """Recompute cached DataFrames that read the table, as Spark does after a write."""
        if self.is_committed:
            return
        try:
            self.target.refresh(self.sink.table)
        except Exception:
            log.warning("cached DataFrames that read %s could not be refreshed", self.sink.table, exc_info=True)

    def _drop(self) -> None:
        try:
            with self.target.connect() as database:
                database.run(f"DROP TABLE IF EXISTS {self._staging}")
        except Exception as error:  # noqa: BLE001 - no job needs the staging table
            warn_not_dropped(self._staging, masked(self.sink.url), error)
