"""Runs the queries that Spark hands over, each as a job."""

from __future__ import annotations

import logging
import os
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from penstock.config import Configuration
from penstock.config.options import SHADOW, SOURCES_TIMEOUT
from penstock.connectors.timeouts import timeout_of
from penstock.errors import ConfigError, JobCancelledError, RowsDifferError
from penstock.events import ExecutionState
from penstock.explain import Explanation
from penstock.extension.written import WriterSink, options_for
from penstock.optimizer.optimizer import strategies_of
from penstock.planner.native_query import NativeQuery
from penstock.planner.outputs import PlannedOutput
from penstock.planner.planner import plan_query
from penstock.progress import Progress
from penstock.results import ResultSink
from penstock.scheduler.job import Job
from penstock.scheduler.origin import UNNAMED, QueryOrigin
from penstock.shadow.job import ShadowedJob
from penstock.spark.jobs import active_session
from penstock.spark.query_hook import SparkError, executed_plan, spark_error
from penstock.spark.session import penstock_settings
from penstock.spark.task_counts import stop_sparks_own_bar
from penstock.spark.waiting_call import waiting_call
from penstock.threads import start_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from penstock.connectors.base import Sink
    from penstock.observer import Observer
    from penstock.optimizer.given import GivenStrategy
    from penstock.planner.plan import JobPlan
    from penstock.spark.handles import PhysicalPlan
    from penstock.spark.jvm import Bridge
    from penstock.spark.query_hook import HandedQuery

log = logging.getLogger("penstock.extension")

_KEPT = 256
"""Jobs that are kept for a summary; a server may run thousands."""


def configuration(bridge: Bridge, arguments: Mapping[str, object], file: str | None) -> Configuration:
    """Return the options for the queries of a session.

    Raises
    ------
    ConfigError
        If an option is unknown or its value not allowed.
    """
    return Configuration.load(arguments, spark_conf=penstock_settings(bridge), file=file, environ=os.environ)


class JobRunner:
    """Runs each query as a job; for one Spark application.

    Parameters
    ----------
    arguments, file
        Options that hold for all queries, as in `penstock.enable`. Those of a query's session are added.
    strategies
        Further strategies.
    observer
        Watches the jobs.
    progress
        Whether to draw how far the jobs have come.

    Attributes
    ----------
    jobs
        The jobs of the latest queries, oldest first.
    asked
        How many queries there were in all.
    """

    def __init__(
        self,
        arguments: Mapping[str, object],
        file: str | None,
        strategies: Sequence[GivenStrategy],
        observer: Observer,
        *,
        progress: bool = False,
    ) -> None:
        self._progress = progress
        self._arguments = dict(arguments)
        self._file = file
        self._strategies = tuple(strategies)
        self._observer = observer
        self._running: dict[int, Job] = {}
        self.jobs: deque[Job] = deque(maxlen=_KEPT)
        self.asked = 0

    def run(self, query: HandedQuery) -> None:
        """Start a query on a thread of its own."""
        origin = QueryOrigin.of(query.text, query.line, query.description, query.page, is_of_spark=True)
        config = self._configuration(query)
        job = _job(query, origin, config)
        self._running[query.number] = job
        self.jobs.append(job)
        self.asked += 1
        try:
            start_thread(f"penstock-query-{query.number}", partial(self._run, query, job, config))
        except RuntimeError as error:  # there are too many threads, or the program ends
            del self._running[query.number]
            job.hand_back(f"no thread could be started: {error}", error)
            raise

    def cancel(self, query: HandedQuery) -> None:
        """Cancel a query's job, if it still runs."""
        job = self._running.get(query.number)
        if job is not None:
            job.cancel("the thread that waited for its rows was interrupted")

    def explain(self, query: HandedQuery) -> None:
        """Plan a query on a thread of its own, as it would run, and tell what comes of it."""
        start_thread(f"penstock-explain-{query.number}", partial(self._explain, query))

    def _explain(self, query: HandedQuery) -> None:
        try:
            query.tell(self._explanation(query))
        except Exception as error:
            log.warning("a query cannot be explained: %s", error, exc_info=True)
            query.tell("")

    def _explanation(self, query: HandedQuery) -> str:
        bridge, name = query.bridge, "rows"
        config = configuration(bridge, self._arguments, self._file)
        with timeout_of(config.seconds(SOURCES_TIMEOUT)), active_session(bridge.session):
            output = PlannedOutput(query.plan, ResultSink(name, executed_plan))
            plan = plan_query(bridge, config, output, name, has_own_strategies=bool(self._strategies))
            return str(Explanation.of(bridge, config, plan, strategies_of(config, self._strategies)))

    def _configuration(self, query: HandedQuery) -> Configuration | ConfigError:
        """Return the options of a query, or why they are wrong, which the query's job reports."""
        try:
            return configuration(query.bridge, self._arguments, self._file)
        except ConfigError as error:
            return error

    def _run(self, query: HandedQuery, job: Job, config: Configuration | ConfigError) -> None:
        try:
            try:
                query.complete(self._rows(query, job, config))
            except Exception as error:
                # What fails before the job has begun is a plan of Penstock's; if it is the query's, Spark says so too.
                failed = spark_error(query.bridge, error) if job.state is not ExecutionState.CREATED else None
                if failed is not None:
                    query.fail(failed)
                    return
                if isinstance(error, JobCancelledError | RowsDifferError):
                    query.fail(SparkError.of(query.bridge, str(error)))
                    return
                log.warning("Spark runs %s itself, as Penstock could not: %s", job.name, error, exc_info=True)
                job.hand_back(f"Penstock failed: {error}", error)
                if isinstance(job, ShadowedJob):
                    job.handed_back(error)
                query.leave()
        except BaseException as error:
            log.exception("a query has no answer")
            query.fail(spark_error(query.bridge, error) or SparkError.of(query.bridge, str(error)))
        finally:
            del self._running[query.number]

    def _rows(self, query: HandedQuery, job: Job, config: Configuration | ConfigError) -> PhysicalPlan:
        """Run a query as a job but for its last stage; return a plan that gives the rows.

        Raises
        ------
        PenstockError
            If an option is wrong, or the job does not finish.
        """
        if isinstance(config, ConfigError):
            raise config
        bridge, written = query.bridge, query.written
        if written is not None:
            config = options_for(written, config)
        plan: JobPlan

        def rows_of(df: DataFrame) -> PhysicalPlan:
            # The last stage runs when the job has ended: its sources are closed, and a command has deleted files.
            is_early = _reads_what_is_open(job, plan) or (query.prepares_folder and _does_more_than_spark(job, plan))
            return query.compute_last_stage(df) if is_early else executed_plan(df)

        sink = ResultSink("rows", rows_of) if written is None else WriterSink(rows_of, written, config)
        self._observer.watch(job)
        if self._progress:
            stop_sparks_own_bar(bridge)
            job.watch(Progress(job.name, job.task_counts, job.called))
        with timeout_of(config.seconds(SOURCES_TIMEOUT)), active_session(bridge.session):
            output, has_own = PlannedOutput(query.plan, sink), bool(self._strategies)
            plan = plan_query(bridge, config, output, job.name, has_own_strategies=has_own)
            target: Sink = sink
            if isinstance(job, ShadowedJob):
                target = job.watched_query(query.plan, sink, query.line or "")
                job.planned(plan)
            sinks = {node_id: target.open(bridge.spark) for node_id in plan.sinks}
            job.start(bridge, plan, config, sinks, strategies_of(config, self._strategies), query.properties)
        job.wait()
        rows: PhysicalPlan = sink.value
        return rows


def _job(query: HandedQuery, origin: QueryOrigin, config: Configuration | ConfigError) -> Job:
    """Return the job of a query; one whose rows are compared, if an option says so."""
    mode = "NO" if isinstance(config, ConfigError) else config.get(SHADOW)
    name = origin.name if origin.name != UNNAMED else waiting_call() or UNNAMED
    if mode == "NO":
        return Job(name, origin)
    return ShadowedJob(query.bridge, name, raises=mode == "ROWS", origin=origin, properties=query.properties)


def _last_nodes(job: Job, plan: JobPlan) -> set[int]:
    """Return the nodes of the vertex that has a job's sink."""
    sinks = set(plan.sinks)
    return next(set(run.vertex.node_ids) for run in job.vertices if sinks & set(run.vertex.node_ids))


def _reads_what_is_open(job: Job, plan: JobPlan) -> bool:
    """Whether the vertex of a job's sink reads a source that is open as long as the job runs."""
    return any(plan.sources[node_id].scan.is_open for node_id in _last_nodes(job, plan) if node_id in plan.sources)


def _does_more_than_spark(job: Job, plan: JobPlan) -> bool:
    """Whether the last stage does what plain Spark does before it, and may fail there: an exchange was left out.

    DuckDB may have given all rows in one task. A strategy may have removed it. Or Spark has made none at the end of a
    vertex, as one task has all the rows anyway. Such a vertex ends without a task of its own, and what reads it
    computes its rows.
    """
    last = _last_nodes(job, plan)
    removed = any({edge.source_id, edge.target_id} <= last and not edge.is_forward for edge in plan.graph.edges)
    scans = [plan.sources[node_id].scan for node_id in last if node_id in plan.sources]
    is_native = any(isinstance(scan, NativeQuery) and scan.last_stage_may_fail for scan in scans)
    is_computed_late = any(run.tasks is None for run in job.vertices if last.isdisjoint(run.vertex.node_ids))
    return is_native or removed or is_computed_late
