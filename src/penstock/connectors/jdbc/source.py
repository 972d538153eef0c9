"""Source of database tables, split by the statistics of the database."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from penstock.arguments import check_settings, check_table, check_text
from penstock.connectors.base import ParallelismInferenceContext, Source, checked_parallelism
from penstock.connectors.jdbc.dialect import JdbcDialect, Request, TableEstimate, default_connections, single_split
from penstock.connectors.jdbc.mysql import MySqlDialect
from penstock.connectors.jdbc.postgres import PostgresDialect
from penstock.connectors.jdbc.splits import count_splits
from penstock.connectors.jdbc.sqlite import SqliteDialect
from penstock.connectors.scan import Scan
from penstock.connectors.splits import choose_split_count, fewer_splits_reason
from penstock.connectors.timeouts import call_within_timeout, timeout
from penstock.errors import SourceError, SourceTimeoutError
from penstock.masking import can_be_stored, repr_without_secrets
from penstock.spark.jvm import root_cause
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.handles import Session
    from penstock.spark.jdbc import JdbcConnection, JdbcRelation, JdbcRequest
    from penstock.spark.logical_plan import LogicalPlan

log = logging.getLogger("penstock.sources")

_TIMEOUT_FRACTION = 0.9
"""The fraction of the timeout after which a failed connection is reported as timed out."""
_COARSE = 16
"""The size of a large split, as a multiple of the volume per task: connections cost more to open than files."""
DIALECTS: tuple[JdbcDialect, ...] = (PostgresDialect(), MySqlDialect(), SqliteDialect())
_HIDDEN = "***"
_USER_INFO = re.compile(r"(//[^:/@\s]*:)[^\s/?#]*@")
_PARAMETERS = (
    re.compile(r"(?<=[?&;])(?P<key>[\w.-]+)=(?P<value>[^&;\s]*)"),
    re.compile(r"(?<=[(,])(?P<key>[\w.-]+)=(?P<value>[^,)\s]*)(?=[^(\s]*\))"),
)
"""Parameters of a URL: those after a question mark, and those in the parentheses of MySQL's hosts."""


def dialect_of(url: str) -> JdbcDialect | None:
    """Return the dialect of a URL, None if the database is not supported."""
    return next((dialect for dialect in DIALECTS if url.startswith(dialect.prefixes)), None)


def with_absolute_path(url: str) -> str:
    """Return a URL that is independent of the working directory."""
    dialect = dialect_of(url)
    return url if dialect is None else dialect.with_absolute_path(url)


def masked(url: str) -> str:
    """Mask possible secrets in a URL, or in a text with URLs."""
    text = _USER_INFO.sub(rf"\1{_HIDDEN}@", url)
    for parameters in _PARAMETERS:
        text = parameters.sub(_mask_parameter, text)
    return text


def is_masked(url: str) -> bool:
    """Return whether a part of a URL is masked."""
    return _HIDDEN in url


def _mask_parameter(parameter: re.Match[str]) -> str:
    key, value = parameter["key"], parameter["value"]
    return f"{key}={value if can_be_stored(key, value) else _HIDDEN}"


@dataclass(frozen=True)
class JdbcSource(Source):
    """A table of a database, or a query.

    Parameters
    ----------
    url
        The database, such as ``jdbc:postgresql://host/db``.
    table
        A table's name, or a query in parentheses with an alias.
    properties
        Options of Spark's reader: ``user``, ``password``, ``driver`` ...
    parallelism
        The number of tasks; if None, inferred from the statistics.
    max_connections
        The maximum number of tasks that read concurrently, each with its own connection; the driver needs another
        for a shared snapshot. If None, half of the free connections of the database.
    """

    url: str
    table: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    parallelism: int | None = None
    max_connections: int | None = None

    __repr__ = repr_without_secrets

    def __post_init__(self) -> None:
        check_text(self.url, "JdbcSource", "a URL, which is a text such as jdbc:postgresql://host/database")
        check_table(self.table, "JdbcSource")
        check_settings(self.properties, f"the properties of table {self.table}")
        if self.url.startswith("jdbc:mariadb:"):
            raise SourceError(
                f"{masked(self.url)} would be read wrongly",
                cause="Spark has no dialect for this URL and quotes columns in a way that MariaDB takes for texts",
                hint="write jdbc:mysql:...?permitMysqlScheme with driver org.mariadb.jdbc.Driver",
            )
        for value in (self.parallelism, self.max_connections):
            if value is not None:
                checked_parallelism(value, f"table {self.table}")
        object.__setattr__(self, "url", with_absolute_path(self.url))

    @property
    def name(self) -> str:
        """The table."""
        return self.table

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows as a DataFrame; reads the schema from the database."""
        options = {**self.properties, "url": self.url, "dbtable": self.table}
        dialect = dialect_of(self.url)
        user_keys = {key.lower() for key in self.properties}
        timeouts = dialect.connect_timeouts(timeout()) if dialect else {}
        options |= {
            key: value
            for key, value in timeouts.items()
            if key.lower() not in user_keys and f"{key.lower()}=" not in self.url.lower()
        }
        if self.max_connections is not None:
            options["scan.max-connections"] = str(self.max_connections)

        def load() -> DataFrame:
            return spark.read.format("jdbc").options(**options).load()

        try:
            return call_within_timeout(f"the database of {self.table}", "asking for its columns", load)
        except SourceTimeoutError:
            raise
        except Exception as error:
            raise SourceError(
                f"table {self.table} of {masked(self.url)} cannot be read",
                cause=masked(root_cause(error)),
                hint="check the URL, user and password, the table's name, and that spark.jars holds the driver",
            ) from error


class JdbcScan(Scan):
    """The scan of a database relation.

    Parameters
    ----------
    relation
        The relation in Spark's plan.
    dialect
        The dialect of its database.
    request
        Returns the columns and conditions that the plan reads.
    cores
        How many tasks run at a time.
    max_connections
        The user's maximum of concurrent connections, or None.
    """

    def __init__(
        self,
        relation: JdbcRelation,
        dialect: JdbcDialect,
        request: Callable[[], JdbcRequest],
        cores: int,
        max_connections: int | None,
    ) -> None:
        self._relation = relation
        self._dialect = dialect
        self._request = request
        self._cores = cores
        self._max_connections = max_connections
        self._estimate: TableEstimate | None = None
        self._conditions: list[str | None] | None = None
        self._snapshot: JdbcConnection | None = None
        self._begin: str | None = None
        self._reason = ""

    @property
    def reason(self) -> str:
        """The basis of the inferred parallelism, a clause."""
        return self._reason

    @property
    def uses_predicates(self) -> bool:
        """True: predicates are pushed down into the query."""
        return True

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits of the volume per task, by the statistics of the database."""
        with self._connect() as database:
            estimate = self._estimated(database)
            bound = context.parallelism_inference_upper_bound
            volume = context.data_volume_per_task
            fine = count_splits(estimate.rows, estimate.row_bytes, volume, bound)
            coarse = count_splits(estimate.rows, estimate.row_bytes, _COARSE * volume, bound)
            splits = choose_split_count(fine, coarse, self._cores)
            limit = self._limit(database)
            self._conditions = estimate.split_conditions(database, min(splits, limit))
        rows = f"{show_count(round(estimate.rows), 'row')} of {show_bytes(round(estimate.row_bytes))} each"
        fewer = fewer_splits_reason(fine, coarse, self._cores)
        capped = f", with at most {limit} connections" if limit < splits else f", {fewer}" if fewer else ""
        self._reason = f"{rows} by {self._dialect.name}'s statistics, read in {estimate.split_by}{capped}"
        if len(self._conditions) > 1 and self._dialect.no_snapshot_reason:
            self._reason += f"; {self._dialect.no_snapshot_reason}"
        return len(self._conditions)

    @property
    def size_in_bytes(self) -> int | None:
        """The estimated size by the statistics of the database; None if it cannot be reached."""
        if self._estimate is None:
            try:
                with self._connect() as database:
                    self._estimated(database)
            except Exception:
                log.warning("%s could not be reached", self._relation.table, exc_info=True)
        return round(self._estimate.rows * self._estimate.row_bytes) if self._estimate else None

    def divide(self, parallelism: int) -> int:
        """Divide the table into at most `parallelism` splits; return the number of splits."""
        if self._conditions is None or len(self._conditions) != parallelism:
            with self._connect() as database:
                self._conditions = self._estimated(database).split_conditions(database, parallelism)
        return len(self._conditions)

    def rows_not_read_once(self) -> int:
        """Count the rows that meet the conditions of no split or of several splits, with a single query."""
        conditions = [condition for condition in self._conditions or () if condition]
        if not conditions:  # a single split
            return 0
        met = " + ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for condition in conditions)
        with self._connect(limit_queries=False) as database:
            ((count,),) = database.rows(f"SELECT count(*) FROM {self._relation.table} WHERE {met} <> 1")
        return int(count or 0)

    def with_filters(self, plan: LogicalPlan) -> JdbcScan:
        """Return a scan of the rows that remain after additional filters."""
        request = cache(lambda: self._relation.request(plan))
        return JdbcScan(self._relation, self._dialect, request, self._cores, self._max_connections)

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the leaf with a task per split; all read the same snapshot if the database supports that."""
        del session
        conditions = self._conditions or [None]
        if len(conditions) > 1 and self._dialect.no_snapshot_reason:
            log.warning(
                "%s, read in %d splits: %s",
                self._relation.table,
                len(conditions),
                self._dialect.no_snapshot_reason,
            )
        elif len(conditions) > 1 and self._snapshot is None:
            self._snapshot = self._connect()
            self._begin = self._dialect.export_snapshot(self._snapshot)
        timeouts = self._dialect.connect_timeouts(timeout())
        return self._relation.split(conditions, self._begin, self._dialect.fetch_size, timeouts)

    def _connect(self, *, limit_queries: bool = True) -> JdbcConnection:
        """Open a connection.

        Parameters
        ----------
        limit_queries
            Whether queries have a timeout; not for queries that read the table itself.
        """
        seconds, start = timeout(), time.monotonic()
        dialect = self._dialect
        timeouts = dialect.query_timeouts(seconds) if limit_queries else dialect.connect_timeouts(seconds)
        try:
            return self._relation.connect(timeouts)
        except Exception as error:
            if time.monotonic() - start < _TIMEOUT_FRACTION * seconds:
                raise
            cause = next(iter(masked(root_cause(error)).splitlines()), "")
            database = f"the database of {self._relation.table}"
            raise SourceTimeoutError.of(database, "connecting to it", seconds, cause) from error

    @property
    def is_open(self) -> bool:
        """Whether the scan holds a snapshot open, which lasts as long as its connection."""
        return self._snapshot is not None

    def close(self) -> None:
        """Close the snapshot; the scan cannot be read any more."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _estimated(self, database: JdbcConnection) -> TableEstimate:
        if self._estimate is None:
            read = self._request()
            request = Request(self._relation.table, read.columns, read.conditions, self._relation.quoted)
            try:
                self._estimate = self._dialect.estimate(database, request)
            except Exception as error:
                log.warning("the statistics of %s could not be read", request.table, exc_info=True)
                cause = next(iter(masked(root_cause(error)).splitlines()), "")
                self._estimate = TableEstimate(0, 0, single_split, f"a single split, as it has no statistics: {cause}")
        return self._estimate

    def _limit(self, database: JdbcConnection) -> int:
        """Return the maximum number of splits; unlimited if all concurrent tasks have a connection."""
        connections = self._max_connections or default_connections(self._dialect.free_connections(database))
        return connections if connections is not None and connections < self._cores else 1 << 30
