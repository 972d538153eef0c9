"""Queries that Spark's planner hands over: which ones, who runs them, and how they are answered.

Uses (Spark 4.0 to 4.3): ``SparkSessionExtensions.injectPlannerStrategy``, ``ExperimentalMethods.extraStrategies``.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import ensure_callback_server_started

from penstock.spark import answers
from penstock.spark.catalyst import analyzed_plan
from penstock.spark.dataframes import HINT_SIZES
from penstock.spark.exchange import physical_plan
from penstock.spark.handles import JvmObject, LocalProperties, PhysicalPlan, Session
from penstock.spark.jvm import Bridge
from penstock.spark.logical_plan import LogicalPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


log = logging.getLogger("penstock.extension")


@dataclass(frozen=True, slots=True)
class Written:
    """What is known of the command that writes a query's rows.

    Parameters
    ----------
    folders
        The columns that become folders.
    has_buckets
        Whether each task writes a file for each bucket.
    options, properties
        Those of the writer, or of the table's OPTIONS, and those of its TBLPROPERTIES, that begin with ``sink.``.
    """

    folders: tuple[str, ...]
    has_buckets: bool
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


class QueryRunner(Protocol):
    """Runs queries that Spark hands over. No method waits for a query's end."""

    def run(self, query: HandedQuery) -> None:
        """Start to run a query, and see to it that it is answered."""

    def cancel(self, query: HandedQuery) -> None:
        """Cancel a query: the thread that waited for it was interrupted."""

    def explain(self, query: HandedQuery) -> None:
        """Start to find out how a query would run, and see to it that it is answered."""


class HandedQuery:
    """A query that Spark has handed over, and that a thread of the JVM waits for.

    Parameters
    ----------
    spark
        A session of the application that the query belongs to.
    handle
        The object of the JVM (``java/HandedQuery.java``).

    Attributes
    ----------
    number
        By which a query is cancelled.
    bridge
        The bridge of the query's own session.
    """

    def __init__(self, spark: SparkSession, handle: Any) -> None:
        self._handle = handle
        self.number = int(handle.number())
        self.bridge = Bridge(_session(spark, handle.session()))

    @cached_property
    def plan(self) -> LogicalPlan:
        """The query's plan, as Spark has optimised it."""
        return LogicalPlan(self.bridge, self._handle.plan())

    @cached_property
    def written(self) -> Written | None:
        """By what command the rows are written; None if by none, or if no option says anything of sinks."""
        found = self._handle.written()
        if found is None:
            return None
        facts = answers.facts(found)
        options, properties = (dict(facts[name]) for name in ("options", "properties"))
        return Written(tuple(map(str, facts["folders"])), bool(facts["buckets"]), options, properties)

    @cached_property
    def prepares_folder(self) -> bool:
        """Whether what writes the rows deletes old files, or makes a folder, before it asks for them."""
        return bool(self._handle.preparesFolder())

    def compute_last_stage(self, df: DataFrame) -> PhysicalPlan:
        """Compute the rows of the last stage, and return a plan that gives them."""
        bridge = Bridge(df.sparkSession)
        rows = LogicalPlan(bridge, self._handle.keep(df._jdf))
        return physical_plan(Session(bridge, df._jdf.sparkSession()), rows)

    @cached_property
    def properties(self) -> LocalProperties:
        """What the thread that waits tells its Spark jobs: job group, tags, scheduler pool."""
        return LocalProperties(self.bridge, self._handle.properties())

    @property
    def text(self) -> str | None:
        """The SQL text that it was given as; None if it was not, or if more was done to the rows than the text says."""
        found = self._handle.text()
        return None if found is None else str(found)

    @property
    def page(self) -> str | None:
        """Spark's own page of the execution that waits for the query, where Spark has a page."""
        found = self._handle.page()
        return None if found is None else str(found)

    @property
    def description(self) -> str | None:
        """The job description of the thread that waits; None if that is a vertex's, which has one of ours."""
        return None if self._property("penstock.inside") else self._property("spark.job.description")

    @property
    def line(self) -> str | None:
        """What PySpark calls the action: a line such as ``collect at job.py:3``."""
        return self._property("callSite.short")

    def _property(self, key: str) -> str | None:
        found = self.properties._handle.getProperty(key)
        return str(found) if found else None

    def complete(self, rows: PhysicalPlan) -> None:
        """Answer with a plan that gives the rows."""
        self._handle.complete(rows)

    def tell(self, explanation: str) -> None:
        """Answer with what the job would be; lines that belong to another are indented more."""
        self._handle.tell(explanation)

    def leave(self) -> None:
        """Answer that Spark has to run the query itself."""
        self._handle.leave()

    def fail(self, error: SparkError) -> None:
        """Answer with an error, which the user gets as if Spark had raised it."""
        self._handle.fail(error)


class SparkError(JvmObject):
    """An exception of Spark."""

    @classmethod
    def of(cls, bridge: Bridge, message: str) -> SparkError:
        """Return a ``SparkException`` that says what went wrong."""
        return cls(bridge, bridge.find("org.apache.spark.SparkException")(message))


def spark_error(bridge: Bridge, error: BaseException | None) -> SparkError | None:
    """Return the exception of a Spark job behind an error, None if what failed is not the query itself.

    An error of Spark's analyser or planner says nothing of the user's query, which Spark has analysed before: a plan
    that Penstock made may be its reason.
    """
    while error is not None:
        thrown = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
        if thrown is not None:
            return SparkError(bridge, thrown) if _is_of_query(thrown) else None
        # PySpark 4.0 and 4.1 put an error of Python's in the place of Spark's, and keep Spark's as its context only.
        is_hidden = error.__suppress_context__ and not isinstance(error, CapturedException)
        error = error.__cause__ or (None if is_hidden else error.__context__)
    return None


_OF_ANALYSIS = ("org.apache.spark.sql.AnalysisException", "org.apache.spark.sql.catalyst.ExtendedAnalysisException")


def _is_of_query(thrown: Any) -> bool:
    text = str(thrown.toString())
    is_of_planning = "INTERNAL_ERROR" in text or text.startswith(_OF_ANALYSIS)
    return text.startswith("org.apache.spark.") and not is_of_planning and not _is_of_a_class_here(text)


def _is_of_a_class_here(text: str) -> bool:
    """Whether what failed in a task is a class of Penstock, by the innermost line of its trace, or was not found."""
    innermost = re.search(r"\n\s*at (\S+)", text)
    is_missing = re.search(r"(ClassNotFoundException|NoClassDefFoundError): penstock\b", text)
    return is_missing is not None or (innermost is not None and innermost[1].startswith("penstock."))


def executed_plan(df: DataFrame) -> PhysicalPlan:
    """Return how Spark runs a DataFrame, with nothing run yet.

    Cached data is not looked for: the query that is being cached would find itself.
    """
    bridge = Bridge(df.sparkSession)
    return physical_plan(Session(bridge, df._jdf.sparkSession()), analyzed_plan(bridge, df))


def install(bridge: Bridge) -> None:
    """Let Spark's planner ask for the queries of a session, of its clones, and of sessions made later."""
    bridge.helper("QueryHook").install(bridge.session)


class Service(JvmObject):
    """Who runs the queries that are handed over, and which are."""


def use(bridge: Bridge, service: Service | None) -> None:
    """Let queries be handed over to a service from now on, or no more."""
    bridge.helper("QueryHook").use(service)


def current(bridge: Bridge) -> Service | None:
    """Return the service that queries are handed over to now."""
    found = bridge.helper("QueryHook").current()
    return None if found is None else Service(bridge, found)


def is_same_session(one: SparkSession, other: SparkSession) -> bool:
    """Whether two objects of PySpark are one session of Spark."""
    return bool(one._jsparkSession.equals(other._jsparkSession))


def service(
    bridge: Bridge,
    runner: QueryRunner,
    threshold: int,
    prefixes: Sequence[str],
    *,
    takes_small: bool,
    fewest_exchanges: float,
    divides_writes: bool,
) -> Service:
    """Return a service.

    Parameters
    ----------
    threshold
        Spark runs queries whose sources hold fewer bytes.
    prefixes
        How settings begin that say how queries are to run; small ones of a session with such settings are taken, too.
    takes_small
        Whether small ones are always taken.
    fewest_exchanges
        From so many exchanges on, DuckDB computes a small query sooner than Spark; 0 if it computes none.
    divides_writes
        Whether an option for all sessions says something of the tasks or files of sinks.
    """
    ensure_callback_server_started(bridge.spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    callback, starts = _Callback(bridge.spark, runner), " ".join(prefixes)
    says = (takes_small, fewest_exchanges, divides_writes)
    made = bridge.helper("QueryHook").service(callback, threshold, *says, starts, *HINT_SIZES)
    return Service(bridge, made)


def end(bridge: Bridge) -> None:
    """Let Spark run all queries of the application from now on, those that were planned before too."""
    if SparkContext._active_spark_context is None:  # the JVM may be gone, and PySpark would print that it is
        return
    bridge.helper("QueryHook").end()


def counts(bridge: Bridge) -> dict[str, int]:
    """Return how many queries were planned that Penstock takes, and how many that it leaves to Spark, by reason.

    Nothing of a JVM that is gone.
    """
    try:
        return {str(key): int(value) for key, value in answers.facts(bridge.helper("QueryHook").counts()).items()}
    except (Py4JError, OSError, TypeError):  # a class of a broken connection is a package, which cannot be called
        return {}


class _Callback:
    """What the JVM calls (``java.util.function.BiConsumer``)."""

    class Java:
        """For py4j."""

        implements = ("java.util.function.BiConsumer",)

    def __init__(self, spark: SparkSession, runner: QueryRunner) -> None:
        self._spark = spark
        self._runner = runner

    def accept(self, action: str, handle: Any) -> None:
        """Start, cancel or explain a query."""
        try:
            query = HandedQuery(self._spark, handle)
            if action == "run":
                self._runner.run(query)
            elif action == "explain":
                self._runner.explain(query)
            else:
                self._runner.cancel(query)
        except Exception:
            log.warning("Spark runs a query itself, as Penstock could not begin", exc_info=True)
            handle.leave()  # there may be no `HandedQuery`


def _session(spark: SparkSession, handle: Any) -> SparkSession:
    """Return a session of the JVM as one of PySpark.

    Its constructor would make it the one of ``rdd.toDF``, for the whole process.
    """
    if spark._jsparkSession.equals(handle):
        return spark
    from pyspark.sql import SparkSession

    made = SparkSession.__new__(SparkSession)
    made.__dict__.update({name: value for name, value in vars(spark).items() if name in _OF_ALL_SESSIONS})
    made._jsparkSession = handle
    return made


_OF_ALL_SESSIONS = ("_sc", "_jsc", "_jvm", "_profiler_collector")
"""What sessions of one application share."""
