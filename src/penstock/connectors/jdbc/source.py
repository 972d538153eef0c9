"""Tables of databases as sources: asked for their splits by the database's own statistics."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from penstock.arguments import check_settings, check_table, check_text
from penstock.connectors.base import ParallelismInferenceContext, Source, checked_parallelism
from penstock.connectors.jdbc.dialect import JdbcDialect, Request, TableEstimate, in_one_piece, share_of
from penstock.connectors.jdbc.mysql import MySqlDialect
from penstock.connectors.jdbc.postgres import PostgresDialect
from penstock.connectors.jdbc.splits import count_splits
from penstock.connectors.jdbc.sqlite import SqliteDialect
from penstock.connectors.scan import Scan
from penstock.connectors.splits import why_not_more, worth_opening
from penstock.connectors.timeouts import answered, timeout
from penstock.errors import SourceError, SourceTimeoutError
from penstock.masking import may_be_kept, repr_without_secrets
from penstock.spark.jvm import root_cause
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.handles import Session
    from penstock.spark.jdbc import JdbcConnection, JdbcRelation, JdbcRequest
    from penstock.spark.logical_plan import LogicalPlan

log = logging.getLogger("penstock.sources")

_NEARLY = 0.9
"""The part of the timeout after which a connection that fails has failed for it."""
_COARSE = 16
"""How many times the volume per task a split may hold: a connection costs more to open than a file does."""
DIALECTS: tuple[JdbcDialect, ...] = (PostgresDialect(), MySqlDialect(), SqliteDialect())
_HIDDEN = "***"
_USER_INFO = re.compile(r"(//[^:/@\s]*:)[^\s/?#]*@")
_PARAMETERS = (
    re.compile(r"(?<=[?&;])(?P<key>[\w.-]+)=(?P<value>[^&;\s]*)"),
    re.compile(r"(?<=[(,])(?P<key>[\w.-]+)=(?P<value>[^,)\s]*)(?=[^(\s]*\))"),
)
"""Of a URL: those behind a question mark, and those in the parentheses of MySQL's hosts."""


def dialect_of(url: str) -> JdbcDialect | None:
    """Return what is known of a database by its URL."""
    return next((one for one in DIALECTS if url.startswith(one.prefixes)), None)


def located(url: str) -> str:
    """Return a URL that means the same database in every working directory."""
    dialect = dialect_of(url)
    return url if dialect is None else dialect.located(url)


def masked(url: str) -> str:
    """Return a URL, or a text with URLs, without what may be a secret."""
    text = _USER_INFO.sub(rf"\1{_HIDDEN}@", url)
    for parameters in _PARAMETERS:
        text = parameters.sub(_shown, text)
    return text


def is_masked(url: str) -> bool:
    """Whether something of a URL is not there."""
    return _HIDDEN in url


def _shown(parameter: re.Match[str]) -> str:
    key, value = parameter["key"], parameter["value"]
    return f"{key}={value if may_be_kept(key, value) else _HIDDEN}"


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
        The number of tasks, instead of what the statistics suggest.
    max_connections
        The most tasks that read at a time, each by a connection of its own; for a snapshot that they share the driver
        has one more. If None, half of the connections that the database has free.
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
        object.__setattr__(self, "url", located(self.url))

    @property
    def name(self) -> str:
        """The table."""
        return self.table

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows as a DataFrame; the database is asked for its schema."""
        options = {**self.properties, "url": self.url, "dbtable": self.table}
        dialect = dialect_of(self.url)
        known = {key.lower() for key in self.properties}
        waits = dialect.waits(timeout()) if dialect else {}
        options |= {
            key: value
            for key, value in waits.items()
            if key.lower() not in known and f"{key.lower()}=" not in self.url.lower()
        }
        if self.max_connections is not None:
            options["scan.max-connections"] = str(self.max_connections)

        def load() -> DataFrame:
            return spark.read.format("jdbc").options(**options).load()

        try:
            return answered(f"the database of {self.table}", "asking for its columns", load)
        except SourceTimeoutError:
            raise
        except Exception as error:
            raise SourceError(
                f"table {self.table} of {masked(self.url)} cannot be read",
                cause=masked(root_cause(error)),
                hint="check the URL, user and password, the table's name, and that spark.jars holds the driver",
            ) from error


class JdbcScan(Scan):
    """A relation of a plan while its job runs.

    Parameters
    ----------
    relation
        The relation in Spark's plan.
    dialect
        Its database.
    request
        Returns what the plan asks of it.
    cores
        How many tasks run at a time.
    max_connections
        The most connections at a time that the user wants, or None.
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
        """What the number was inferred from, half a sentence."""
        return self._reason

    @property
    def uses_predicates(self) -> bool:
        """True: conditions become a part of the statement."""
        return True

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits of the volume per task, by the database's statistics."""
        with self._connect() as database:
            estimate = self._estimated(database)
            bound = context.parallelism_inference_upper_bound
            volume = context.data_volume_per_task
            fine = count_splits(estimate.rows, estimate.row_bytes, volume, bound)
            coarse = count_splits(estimate.rows, estimate.row_bytes, _COARSE * volume, bound)
            wanted = worth_opening(fine, coarse, self._cores)
            limit = self._limit(database)
            self._conditions = estimate.cut(database, min(wanted, limit))
        rows = f"{show_count(round(estimate.rows), 'row')} of {show_bytes(round(estimate.row_bytes))} each"
        fewer = why_not_more(fine, coarse, self._cores)
        capped = f", with at most {limit} connections" if limit < wanted else f", {fewer}" if fewer else ""
        self._reason = f"{rows} by {self._dialect.name}'s statistics, read in {estimate.how}{capped}"
        if len(self._conditions) > 1 and self._dialect.no_snapshot:
            self._reason += f"; {self._dialect.no_snapshot}"
        return len(self._conditions)

    @property
    def size_in_bytes(self) -> int | None:
        """About what is read, by the database's statistics; None if they cannot be had."""
        if self._estimate is None:
            try:
                with self._connect() as database:
                    self._estimated(database)
            except Exception:
                log.warning("%s could not be reached", self._relation.table, exc_info=True)
        return round(self._estimate.rows * self._estimate.row_bytes) if self._estimate else None

    def cut(self, parallelism: int) -> int:
        """Cut the table into at most so many conditions; return how many there are."""
        if self._conditions is None or len(self._conditions) != parallelism:
            with self._connect() as database:
                self._conditions = self._estimated(database).cut(database, parallelism)
        return len(self._conditions)

    def rows_not_read_once(self) -> int:
        """Count, in one statement, the rows of the table that do not meet exactly one of the splits' conditions."""
        conditions = [condition for condition in self._conditions or () if condition]
        if not conditions:  # one piece
            return 0
        met = " + ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for condition in conditions)
        with self._connect(for_long=True) as database:
            ((found,),) = database.rows(f"SELECT count(*) FROM {self._relation.table} WHERE {met} <> 1")
        return int(found or 0)

    def with_filters(self, plan: LogicalPlan) -> JdbcScan:
        """Return a scan of the rows that are left by more filters."""
        request = cache(lambda: self._relation.request(plan))
        return JdbcScan(self._relation, self._dialect, request, self._cores, self._max_connections)

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the plan's leaf, read by a task per condition, all of one snapshot where the database can share it."""
        del session
        conditions = self._conditions or [None]
        if len(conditions) > 1 and self._dialect.no_snapshot:
            log.warning("%s, read in %d pieces: %s", self._relation.table, len(conditions), self._dialect.no_snapshot)
        elif len(conditions) > 1 and self._snapshot is None:
            self._snapshot = self._connect()
            self._begin = self._dialect.export_snapshot(self._snapshot)
        waits = self._dialect.waits(timeout())
        return self._relation.cut(conditions, self._begin, self._dialect.fetch_size, waits)

    def _connect(self, *, for_long: bool = False) -> JdbcConnection:
        """Open a connection.

        Parameters
        ----------
        for_long
            Whether answers may take as long as they do, as what is asked for is not in the statistics.
        """
        seconds, begun = timeout(), time.monotonic()
        waits = self._dialect.waits(seconds) if for_long else self._dialect.asking_waits(seconds)
        try:
            return self._relation.connect(waits)
        except Exception as error:
            if time.monotonic() - begun < _NEARLY * seconds:
                raise
            why = next(iter(masked(root_cause(error)).splitlines()), "")
            where = f"the database of {self._relation.table}"
            raise SourceTimeoutError.of(where, "connecting to it", seconds, why) from error

    @property
    def is_open(self) -> bool:
        """Whether its tasks read a snapshot, which lasts as long as its connection."""
        return self._snapshot is not None

    def close(self) -> None:
        """Let go of the snapshot; nothing can be read of it any more."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def _estimated(self, database: JdbcConnection) -> TableEstimate:
        if self._estimate is None:
            wanted = self._request()
            asked = Request(self._relation.table, wanted.columns, wanted.conditions, self._relation.quoted)
            try:
                self._estimate = self._dialect.estimate(database, asked)
            except Exception as error:
                log.warning("%s could not be asked for statistics", asked.table, exc_info=True)
                why = next(iter(masked(root_cause(error)).splitlines()), "")
                self._estimate = TableEstimate(0, 0, in_one_piece, f"one piece, as it has no statistics: {why}")
        return self._estimate

    def _limit(self, database: JdbcConnection) -> int:
        """Return the most splits; where no more tasks run at a time than there are connections, any number will do."""
        most = self._max_connections or share_of(self._dialect.free_connections(database))
        return most if most is not None and most < self._cores else 1 << 30
