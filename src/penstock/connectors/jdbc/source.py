"""Source of database tables, which is split by the statistics of the database."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from penstock.base.arguments import check_settings, check_table, check_text
from penstock.base.masking import can_be_stored, repr_without_secrets
from penstock.base.units import show_bytes, show_count
from penstock.connectors.core.base import ParallelismInferenceContext, Source, check_positive
from penstock.connectors.core.scan import Scan
from penstock.connectors.core.splits import choose_split_count
from penstock.connectors.core.timeouts import call_within_timeout, timeout
from penstock.connectors.jdbc.dialect import JdbcDialect, ReadRequest, TableEstimate, default_connections, single_split
from penstock.connectors.jdbc.mysql import MySqlDialect
from penstock.connectors.jdbc.postgres import PostgresDialect
from penstock.connectors.jdbc.splits import count_splits
from penstock.connectors.jdbc.sqlite import SqliteDialect
from penstock.errors import SourceError, SourceTimeoutError
from penstock.spark.bridge.jvm import root_cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.bridge.handles import Session
    from penstock.spark.io.jdbc import JdbcConnection, JdbcRelation, JdbcRequest
    from penstock.spark.plans.logical_plan import LogicalPlan

log = logging.getLogger("penstock.sources")

_TIMEOUT_FRACTION = 0.9
"""The fraction of the timeout after which a failed connection is reported as timed out."""
_COARSE_FACTOR = 16
"""The size of a split in the `coarse` count, as a multiple of the volume per task; connections cost more than files."""
DIALECTS: tuple[JdbcDialect, ...] = (PostgresDialect(), MySqlDialect(), SqliteDialect())
URL_MASK = "***"
"""The mask of a secret in a URL."""
_USER_INFO = re.compile(r"(//[^:/@\s]*:)[^\s/?#]*@")
_PARAMETER_PATTERNS = (
    re.compile(r"(?<=[?&;])(?P<key>[\w.-]+)=(?P<value>[^&;\s]*)"),
    re.compile(r"(?<=[(,])(?P<key>[\w.-]+)=(?P<value>[^,)\s]*)(?=[^(\s]*\))"),
)
"""Patterns of parameters in a URL: in its query string, and in the parentheses of MySQL's hosts."""


def dialect_of(url: str) -> JdbcDialect | None:
    """Return the dialect of a URL, None if the database is not supported."""
    return next((dialect for dialect in DIALECTS if url.startswith(dialect.url_prefixes)), None)


def with_absolute_path(url: str) -> str:
    """Return a URL that is independent of the working directory."""
    dialect = dialect_of(url)
    return url if dialect is None else dialect.with_absolute_path(url)


def masked(url: str) -> str:
    """Mask possible secrets in a URL, or in a text with URLs."""
    text = _USER_INFO.sub(rf"\1{URL_MASK}@", url)
    for pattern in _PARAMETER_PATTERNS:
        text = pattern.sub(_mask_parameter, text)
    return text


def _mask_parameter(parameter: re.Match[str]) -> str:
    key, value = parameter["key"], parameter["value"]
    return f"{key}={value if can_be_stored(key, value) else URL_MASK}"


@dataclass(frozen=True)
class JdbcSource(Source):
    """A table of a database, or a query.

    >>> JdbcSource("jdbc:postgresql://db/shop", "orders", {"user": "etl"}, max_connections=4).name
    'orders'

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
        The maximum number of tasks that read concurrently, each with its own connection; the driver needs another for a
        shared snapshot. If None, half of the free connections of the database.
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
                cause="Spark has no dialect for this URL, and MariaDB reads column names in its queries as strings",
                hint="use the URL jdbc:mysql:...?permitMysqlScheme with the driver org.mariadb.jdbc.Driver",
            )
        check_positive(f"table {self.table}", self.parallelism, self.max_connections)
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


@dataclass(eq=False)
class JdbcScan(Scan):
    """The scan of a database relation.

    `request` returns the columns that the plan reads, and its conditions; `cores` is the number of tasks
    that run concurrently, and `max_connections` the user's limit of connections, or None. `_conditions` are those of
    the splits (None: all rows). Tasks run the statement `_import_snapshot` to read the snapshot that `_snapshot` holds.
    """

    uses_predicates = True  # the query has them as conditions

    relation: JdbcRelation
    dialect: JdbcDialect
    request: Callable[[], JdbcRequest]
    cores: int
    max_connections: int | None
    reason: str = field(default="", init=False)
    _estimate: TableEstimate | None = field(default=None, init=False)
    _conditions: list[str | None] | None = field(default=None, init=False)
    _snapshot: JdbcConnection | None = field(default=None, init=False)
    _import_snapshot: str | None = field(default=None, init=False)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits by the database's statistics, the target bytes per task and the connections."""
        with self._connect() as database:
            estimate = self._load_estimate(database)
            bound = context.parallelism_inference_upper_bound
            volume = context.data_volume_per_task
            fine = count_splits(estimate.rows, estimate.row_bytes, volume, bound)
            coarse = count_splits(estimate.rows, estimate.row_bytes, _COARSE_FACTOR * volume, bound)
            splits, reason_for_fewer = choose_split_count(fine, coarse, self.cores)
            connections = self.max_connections or default_connections(self.dialect.free_connections(database))
            # No limit on the splits if all concurrent tasks can have a connection.
            limit = connections if connections is not None and connections < self.cores else 1 << 30
            self._conditions = estimate.split_conditions(database, min(splits, limit))
        rows = f"{show_count(round(estimate.rows), 'row')} of {show_bytes(round(estimate.row_bytes))} each"
        cap = f"with at most {limit} connections" if limit < splits else reason_for_fewer
        self.reason = f"{rows} by {self.dialect.name}'s statistics, read in {estimate.split_by}"
        self.reason += f", {cap}" if cap else ""
        if len(self._conditions) > 1 and self.dialect.no_snapshot_reason:
            self.reason += f"; {self.dialect.no_snapshot_reason}"
        return len(self._conditions)

    @property
    def size_in_bytes(self) -> int | None:
        """The estimated size by the statistics of the database; None if the database cannot be reached."""
        if self._estimate is None:
            try:
                with self._connect() as database:
                    self._load_estimate(database)
            except Exception:
                log.warning("%s could not be reached", self.relation.table, exc_info=True)
        return round(self._estimate.rows * self._estimate.row_bytes) if self._estimate else None

    def divide(self, parallelism: int) -> int:
        """Divide the table into at most `parallelism` splits; return the number of splits."""
        if self._conditions is None or len(self._conditions) != parallelism:
            with self._connect() as database:
                self._conditions = self._load_estimate(database).split_conditions(database, parallelism)
        return len(self._conditions)

    def rows_not_read_once(self) -> int:
        """Count the rows that meet the condition of no split, or of several splits, with a single query."""
        conditions = [condition for condition in self._conditions or () if condition]
        if not conditions:  # a single split
            return 0
        number_met = " + ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for condition in conditions)
        with self._connect(limit_queries=False) as database:
            ((count,),) = database.rows(f"SELECT count(*) FROM {self.relation.table} WHERE {number_met} <> 1")
        return int(count or 0)

    def with_filters(self, plan: LogicalPlan) -> JdbcScan:
        """Return a scan of the rows that remain after additional filters."""
        return replace(self, request=cache(lambda: self.relation.request(plan)))

    def leaf(self, session: Session | None = None) -> LogicalPlan:  # noqa: ARG002
        """Return the leaf with a task per split; all tasks read the same snapshot if the database supports that."""
        conditions, no_snapshot_reason = self._conditions or [None], self.dialect.no_snapshot_reason
        if len(conditions) > 1 and no_snapshot_reason:
            log.warning("%s, read in %d splits: %s", self.relation.table, len(conditions), no_snapshot_reason)
        elif len(conditions) > 1 and self._snapshot is None:
            self._snapshot = self._connect()
            self._import_snapshot = self.dialect.export_snapshot(self._snapshot)
        timeouts = self.dialect.connect_timeouts(timeout())
        return self.relation.split(conditions, self._import_snapshot, self.dialect.fetch_size, timeouts)

    def _connect(self, *, limit_queries: bool = True) -> JdbcConnection:
        """Open a connection; with `limit_queries` False, queries have no timeout, because they read the whole table."""
        seconds, start = timeout(), time.monotonic()
        dialect = self.dialect
        timeouts = dialect.query_timeouts(seconds) if limit_queries else dialect.connect_timeouts(seconds)
        try:
            return self.relation.connect(timeouts)
        except Exception as error:
            if time.monotonic() - start < _TIMEOUT_FRACTION * seconds:
                raise
            cause = next(iter(masked(root_cause(error)).splitlines()), "")
            target = f"the database of {self.relation.table}"
            raise SourceTimeoutError.of(target, "connecting to it", seconds, cause) from error

    @property
    def is_open(self) -> bool:
        """Whether the scan holds a snapshot open, which lasts as long as its connection."""
        return self._snapshot is not None

    def close(self) -> None:
        """Close the snapshot; after that, the scan cannot be read."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _load_estimate(self, database: JdbcConnection) -> TableEstimate:
        if self._estimate is None:
            needed = self.request()
            request = ReadRequest(self.relation.table, needed.columns, needed.conditions, self.relation.quoted)
            try:
                self._estimate = self.dialect.estimate(database, request)
            except Exception as error:
                log.warning("the statistics of %s could not be read", request.table, exc_info=True)
                cause = next(iter(masked(root_cause(error)).splitlines()), "")
                self._estimate = TableEstimate(0, 0, single_split, f"a single split, as it has no statistics: {cause}")
        return self._estimate
