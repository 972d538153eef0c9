"""Queries that Spark's planner delegates to Penstock: the planner hook, the runner's interface, and the replies."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from py4j.java_gateway import JavaObject
from py4j.protocol import GATEWAY_SERVER_OBJECT_ID, Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import JvmObject, LocalProperties, PhysicalPlan, Session
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.waiting_call import is_pyspark_call, short_call, waiting_call
from penstock.spark.plans.catalyst import analyzed_plan
from penstock.spark.plans.dataframes import HINT_SIZES
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.nodes import read_plan
from penstock.spark.run.exchange import physical_plan

log = logging.getLogger("penstock.extension")

_SPARK_EXCEPTION = "org.apache.spark.SparkException"
_CALL_SITE = "callSite.short"
"""The local property with the name of Spark jobs."""
_ANALYSIS_ERRORS = ("org.apache.spark.sql.AnalysisException", "org.apache.spark.sql.catalyst.ExtendedAnalysisException")


@dataclass(frozen=True, slots=True)
class WriteCommand:
    """The command that writes a query's rows."""

    partition_columns: tuple[str, ...]
    has_buckets: bool
    """Whether each task writes a file for each bucket."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The ``sink.`` settings among the writer's options or the table's OPTIONS."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """The ``sink.`` settings among the table's TBLPROPERTIES."""


class QueryRunner(Protocol):
    """Runs delegated queries. No method waits for the end of a query."""

    def run(self, query: DelegatedQuery) -> None:
        """Start a query, and ensure that it gets a reply."""

    def cancel(self, query: DelegatedQuery) -> None:
        """Cancel a query: the waiting thread was interrupted."""

    def explain(self, query: DelegatedQuery) -> None:
        """Start to plan a query without running it, and ensure that it gets a reply."""


class DelegatedQuery:
    """A query that Spark has delegated to Penstock; a thread of the JVM, the *waiting thread*, waits for its reply.

    `number` identifies the query for `QueryRunner.cancel`. `bridge` is the bridge of the query's session.
    """

    def __init__(self, spark: SparkSession, handle: Any) -> None:
        self._handle = handle
        self.number = int(handle.number())
        self.bridge = Bridge(_session(spark, handle.session()))

    @cached_property
    def plan(self) -> LogicalPlan:
        """The query's optimized plan."""
        return LogicalPlan(self.bridge, self._handle.plan())

    @cached_property
    def write_command(self) -> WriteCommand | None:
        """The command that writes the rows; None if there is no command, or if no option for sinks is set."""
        answer = self._handle.writeFacts()
        if answer is None:
            return None
        facts = answers.facts(answer)
        return WriteCommand(tuple(facts["folders"]), facts["buckets"], facts["options"], facts["properties"])

    @cached_property
    def is_written(self) -> bool:
        """Whether a command writes the rows."""
        return bool(self._handle.isWritten())

    @cached_property
    def prepares_folder(self) -> bool:
        """Whether the command deletes old files or creates a folder before it requests the rows."""
        return bool(self._handle.preparesFolder())

    def compute_last_stage(self, df: DataFrame) -> PhysicalPlan:
        """Compute and cache the rows of the last stage of a DataFrame; return a plan that reads the cached rows."""
        bridge = Bridge(df.sparkSession)
        rows = LogicalPlan(bridge, self._handle.cacheRows(df._jdf))
        return physical_plan(Session(bridge, df._jdf.sparkSession()), rows)

    @cached_property
    def properties(self) -> LocalProperties:
        """The local properties of the waiting thread, such as job group, tags and scheduler pool."""
        return LocalProperties(self.bridge, self._handle.properties())

    @property
    def sql_text(self) -> str | None:
        """The query's SQL text; None if DataFrame methods created the query or transform the rows of an SQL text."""
        text = self._handle.sqlText()
        return None if text is None else str(text)

    @property
    def ui_page(self) -> str | None:
        """The address of the waiting SQL execution in Spark's UI, None without UI."""
        page = self._handle.uiPage()
        return None if page is None else str(page)

    @property
    def description(self) -> str | None:
        """The job description of the waiting thread; None if it is not set, or describes a vertex."""
        return None if self._is_inside_job else self._property("spark.job.description")

    @property
    def _is_inside_job(self) -> bool:
        return self._property("penstock.inside") is not None  # see `SessionSettings.java`

    @cached_property
    def call_site(self) -> str | None:
        """The action and its line in the user's program, such as ``collect at job.py:3``; None if they are unknown."""
        call = self._property(_CALL_SITE)
        if call is None or is_pyspark_call(call):  # else the user has set a text, which takes precedence
            call = self._waiting_call(call)
        if call is None:
            return None
        self.properties._handle.setProperty(_CALL_SITE, short_call(call))  # for cached queries that the job reads
        return short_call(call)

    def _waiting_call(self, call_site: str | None) -> str | None:
        """Return the call that waits on the query's Python thread, else `call_site`.

        Without such a thread, `call_site` takes precedence over the only call that waits at all.
        """
        port = self._handle.pythonPort()
        if port is None and call_site is not None:
            return call_site
        try:
            return waiting_call(None if port is None else int(port)) or call_site
        except Exception:  # stacks change meanwhile; a query must not fail for lack of a name
            log.info("the line of a query cannot be determined", exc_info=True)
            return call_site

    @property
    def fills_cache(self) -> bool:
        """Whether the waiting action, or a job for it, reads the rows from Spark's cache, which is filled now."""
        return self._is_inside_job or bool(self._handle.fillsCache())

    @property
    def outline(self) -> str:
        """The kinds of operators that rearrange rows, and the sources, such as ``sort, aggregate of orders``."""
        return read_plan(self.plan).outline

    def _property(self, key: str) -> str | None:
        value = self.properties._handle.getProperty(key)
        return str(value) if value else None

    def complete(self, rows: PhysicalPlan) -> None:
        """Reply with a plan that returns the rows."""
        self._handle.complete(rows)

    def reply_explanation(self, explanation: str) -> None:
        """Reply with an explanation of the job, in lines; details are indented. Empty if there is no explanation."""
        self._handle.explain(explanation)

    def decline(self) -> None:
        """Reply that Spark must run the query itself."""
        self._handle.decline()

    def fail(self, error: SparkError) -> None:
        """Reply with an error, which the user sees as if Spark had raised it."""
        self._handle.fail(error)


class SparkError(JvmObject):
    """An exception of Spark."""

    @classmethod
    def of(cls, bridge: Bridge, error: BaseException) -> SparkError:
        """Return an exception with the message of an error; PySpark shows that of a wrong option without a stack."""
        name = "java.lang.IllegalArgumentException" if isinstance(error, ConfigError) else _SPARK_EXCEPTION
        return cls(bridge, bridge.find(name)(str(error)))


def spark_error(bridge: Bridge, error: BaseException | None) -> SparkError | None:
    """Return the exception of Spark that caused an error, None if the user's query is not the cause.

    Internal errors and errors of the analyzer are ignored: Spark has analyzed the query without an error before it was
    delegated, so the cause may be a plan that Penstock built.
    """
    while error is not None:
        thrown = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
        if thrown is not None:
            return SparkError(bridge, thrown) if _is_query_error(thrown) else None
        # A `CapturedException` of PySpark 4.0 or 4.1 may lack `_origin`; its suppressed context is then Spark's error.
        is_hidden = error.__suppress_context__ and not isinstance(error, CapturedException)
        error = error.__cause__ or (None if is_hidden else error.__context__)
    return None


def _is_query_error(thrown: Any) -> bool:
    text = str(thrown.toString())
    is_planning_error = "INTERNAL_ERROR" in text or text.startswith(_ANALYSIS_ERRORS)
    is_missing_class = re.search(r"(ClassNotFoundException|NoClassDefFoundError): penstock\b", text)
    innermost = re.search(r"\n\s*at (\S+)", text)
    is_penstock_error = is_missing_class or (innermost and innermost[1].startswith("penstock."))
    return text.startswith("org.apache.spark.") and not is_planning_error and not is_penstock_error


def executed_plan(df: DataFrame) -> PhysicalPlan:
    """Return a DataFrame's physical plan, which reads no cached data: a query being cached would wait for itself."""
    bridge = Bridge(df.sparkSession)
    return physical_plan(Session(bridge, df._jdf.sparkSession()), analyzed_plan(bridge, df))


def install(bridge: Bridge) -> None:
    """Install the planner hook in a session, its clones, and sessions that the application creates later."""
    bridge.helper("QueryHook").install(bridge.session)


class Service(JvmObject):
    """The JVM object that decides which queries to delegate, and passes them to a runner (``QueryHook.Service``)."""


class QueryPredicate(JvmObject):
    """A condition on optimized plans (``java.util.function.Predicate``)."""


def set_service(bridge: Bridge, service: Service | None) -> None:
    """Set the service to which Spark delegates new queries; None turns delegation off."""
    bridge.helper("QueryHook").setService(service)


def current_service(bridge: Bridge) -> Service | None:
    """Return the current service, None if delegation is off."""
    service = bridge.helper("QueryHook").current()
    return None if service is None else Service(bridge, service)


def is_same_session(session: SparkSession, other_session: SparkSession) -> bool:
    """Whether two PySpark objects refer to the same Spark session."""
    return bool(session._jsparkSession.equals(other_session._jsparkSession))


def create_service(
    bridge: Bridge,
    runner: QueryRunner,
    threshold: int,
    prefixes: Sequence[str],
    *,
    delegates_small: bool,
    min_exchanges: float,
    engine: QueryPredicate | None,
    has_sink_options: bool,
) -> Service:
    """Return a service that delegates queries to a runner.

    Spark itself runs small queries, whose sources have fewer bytes than `threshold`, unless `delegates_small` is true
    or the user has set a plan hint, a sink option, or an option whose name begins with any of `prefixes`. Small queries
    with `min_exchanges` or more exchanges are also delegated if `engine`, a native engine's test or None, accepts them.
    `has_sink_options` says whether an option for all sessions sets the tasks or file sizes of sinks.
    """
    ensure_callback_server_started(bridge.spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    callback, joined_prefixes = _Callback(bridge.spark, runner), " ".join(prefixes)
    flags = (delegates_small, min_exchanges, engine, has_sink_options)
    gateway: Any = bridge.spark.sparkContext._gateway
    server = JavaObject(GATEWAY_SERVER_OBJECT_ID, gateway._gateway_client)
    handle = bridge.helper("QueryHook").service(callback, server, threshold, *flags, joined_prefixes, *HINT_SIZES)
    return Service(bridge, handle)


def end_delegation(bridge: Bridge) -> None:
    """Let Spark itself run all queries of the application from now on, including those that are already planned."""
    if SparkContext._active_spark_context is None:  # the JVM may have exited, and PySpark would print an error
        return
    bridge.helper("QueryHook").end()


def query_counts(bridge: Bridge) -> dict[str, int]:
    """Return the number of delegated queries (``taken``), and of declined queries by reason; empty without a JVM."""
    try:
        return {str(key): int(value) for key, value in answers.facts(bridge.helper("QueryHook").counts()).items()}
    except (Py4JError, OSError, TypeError):  # with a broken connection, py4j returns a package, which is not callable
        return {}


class _Callback:  # passes the calls of the JVM to a runner
    class Java:
        """The interface that py4j implements."""

        implements = ("java.util.function.BiConsumer",)

    def __init__(self, spark: SparkSession, runner: QueryRunner) -> None:
        self._spark = spark
        self._runner = runner

    def accept(self, action: str, handle: Any) -> None:
        """Call the runner's method with the name of the action: run, cancel or explain."""
        try:
            getattr(self._runner, action)(DelegatedQuery(self._spark, handle))
        except Exception:
            log.warning("Spark runs a query itself, as Penstock could not start it", exc_info=True)
            handle.decline()  # a `DelegatedQuery` may not have been created


def _session(spark: SparkSession, handle: Any) -> SparkSession:
    """Wrap a JVM session; PySpark's constructor would also make it the default session of ``rdd.toDF``."""
    if spark._jsparkSession.equals(handle):
        return spark
    session = SparkSession.__new__(SparkSession)
    shared = ("_sc", "_jsc", "_jvm", "_profiler_collector")
    session.__dict__.update({name: value for name, value in vars(spark).items() if name in shared})
    session._jsparkSession = handle
    return session
