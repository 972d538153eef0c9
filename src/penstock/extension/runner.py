"""Runs the queries that Spark delegates, each as a job."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.threads import start_thread
from penstock.config import Configuration
from penstock.config.options import SHADOW, SINK_PARALLELISM, SINK_TARGET_FILE_SIZE, SOURCES_TIMEOUT
from penstock.connectors.core.timeouts import set_timeout
from penstock.entry.results import ResultSink
from penstock.errors import ConfigError, ConfigFileError, JobCancelledError, RowsDifferError
from penstock.events import ExecutionState
from penstock.graph.labels import SPARK_WRITER
from penstock.optimizer.optimizer import strategies_of
from penstock.planner.outputs import PlannedOutput
from penstock.planner.planner import plan_query
from penstock.planner.whole_queries import NativeQuery
from penstock.report.explain import ExplainedPlan
from penstock.report.progress import Progress
from penstock.scheduler.job import Job
from penstock.scheduler.origin import UNNAMED, QueryOrigin
from penstock.shadow.job import ShadowedJob
from penstock.spark.bridge.session import penstock_settings
from penstock.spark.run.jobs import active_session, stop_spark_progress_bar
from penstock.spark.run.query_hook import DelegatedQuery, SparkError, WriteCommand, executed_plan, spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.connectors.core.base import Sink, SinkOptions
    from penstock.entry.observer import Observer
    from penstock.optimizer.user_strategies import UserStrategy
    from penstock.planner.plan import JobPlan
    from penstock.spark.bridge.handles import PhysicalPlan
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.extension")


class WriterSink(ResultSink):
    """Sink that stands for Spark's writer, so that sink options decide the number of tasks of the last stage."""

    def __init__(self, fetch: Callable[[DataFrame], Any], command: WriteCommand, config: Configuration) -> None:
        super().__init__(SPARK_WRITER, fetch)
        self._command = command
        self.parallelism = config.maybe_integer(SINK_PARALLELISM)
        is_set = config.origin(SINK_TARGET_FILE_SIZE) != "default"
        # With buckets, each task writes a file for each bucket, so the bytes of a task do not determine the file size.
        self._file_size = config.integer(SINK_TARGET_FILE_SIZE) if is_set and not command.has_buckets else None

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns, each of which becomes a level of folders."""
        return self._command.partition_columns

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the target file size in bytes from the options, None if it is not set."""
        del options
        return self._file_size


_RETAINED_JOBS = 256
"""The maximum number of jobs that are retained for summaries; a server may run thousands."""


def configuration(bridge: Bridge, arguments: Mapping[str, object], file: str | None) -> Configuration:
    """Return the options for the queries of a session.

    Raise `ConfigError` if an option is unknown or its value is not allowed.
    """
    return Configuration.load(arguments, spark_conf=penstock_settings(bridge), file=file, environ=os.environ)


class JobRunner:
    """Runs each query that Spark delegates as a job.

    `arguments` and `file` are options for all queries (`config` and `config_file` of `penstock.enable`). Options of the
    session override `file`. `jobs` are the jobs of the latest queries, oldest first; `query_count` counts all queries.
    """

    def __init__(
        self,
        arguments: Mapping[str, object],
        file: str | None,
        strategies: Sequence[UserStrategy],
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
        self.jobs: deque[Job] = deque(maxlen=_RETAINED_JOBS)
        self.query_count = 0

    def run(self, query: DelegatedQuery) -> None:
        """Start a query on a new thread."""
        origin = QueryOrigin.of(query.sql_text, query.call_site, query.description, query.ui_page, is_delegated=True)
        config: Configuration | ConfigError
        try:
            config = configuration(query.bridge, self._arguments, self._file)
        except ConfigError as error:  # reported by the job of the query
            config = error
        job = _create_job(query, origin, config)
        self._running[query.number] = job
        self.jobs.append(job)
        self.query_count += 1
        try:
            start_thread(f"penstock-query-{query.number}", partial(self._run, query, job, config))
        except RuntimeError as error:  # too many threads, or the interpreter is shutting down
            del self._running[query.number]
            job.fall_back_to_spark(f"no thread could be started: {error}", error)
            raise

    def cancel(self, query: DelegatedQuery) -> None:
        """Cancel a query's job if it is still running."""
        job = self._running.get(query.number)
        if job is not None:
            job.cancel("the thread that waited for its rows was interrupted")

    def explain(self, query: DelegatedQuery) -> None:
        """Plan a query on a new thread, without running it, and send the explanation to Spark."""
        start_thread(f"penstock-explain-{query.number}", partial(self._explain, query))

    def _explain(self, query: DelegatedQuery) -> None:
        try:
            bridge, name = query.bridge, "rows"
            config = configuration(bridge, self._arguments, self._file)
            with set_timeout(config.seconds(SOURCES_TIMEOUT)), active_session(bridge.session):
                output = PlannedOutput(query.plan, ResultSink(name, executed_plan))
                plan = plan_query(bridge, config, output, name, has_user_strategies=bool(self._strategies))
                explained = str(ExplainedPlan.of(bridge, config, plan, strategies_of(config, self._strategies)))
            query.reply_explanation(explained)
        except Exception as error:
            log.warning("a query cannot be explained: %s", error, exc_info=True)
            query.reply_explanation("")

    def _run(self, query: DelegatedQuery, job: Job, config: Configuration | ConfigError) -> None:
        try:
            try:
                query.complete(self._rows(query, job, config))
            except Exception as error:
                # An error before the job has started comes from planning in Penstock. If the query itself is wrong,
                # Spark raises its own error when it runs the query.
                cause = spark_error(query.bridge, error) if job.state is not ExecutionState.CREATED else None
                if cause is not None:
                    query.fail(cause)
                    return
                is_wrong_option = isinstance(error, ConfigError) and not isinstance(error, ConfigFileError)
                if is_wrong_option:
                    job.fail(error)
                if isinstance(error, JobCancelledError | RowsDifferError) or is_wrong_option:
                    query.fail(SparkError.of(query.bridge, error))
                    return
                log.warning("Spark runs %s itself, as Penstock could not: %s", job.name, error, exc_info=True)
                job.fall_back_to_spark(f"Penstock failed: {error}", error)
                if isinstance(job, ShadowedJob):
                    job.record_fallback(error)
                query.decline()
        except BaseException as error:
            log.exception("a query failed without a result")
            query.fail(spark_error(query.bridge, error) or SparkError.of(query.bridge, error))
        finally:
            del self._running[query.number]

    def _rows(self, query: DelegatedQuery, job: Job, config: Configuration | ConfigError) -> PhysicalPlan:
        """Run a query as a job, usually without its last stage; return a plan of the rows, which Spark then runs.

        Raise `PenstockError` if an option is wrong, or the job fails or is cancelled.
        """
        if isinstance(config, ConfigError):
            raise config
        bridge, command = query.bridge, query.write_command
        if command is not None:
            config = config.for_table("sink.", command.options, command.properties, SPARK_WRITER)
        plan: JobPlan

        def rows_of(df: DataFrame) -> PhysicalPlan:
            # Spark normally runs the last stage after the job's end. By then, sources are closed, and a command may
            # have deleted the old files of its target, which would be lost if this stage failed.
            sources = [plan.sources[node_id] for node_id in _nodes_of_last_vertex(job, plan) if node_id in plan.sources]
            must_run_now = any(source.scan.is_open for source in sources) or (
                query.prepares_folder and _may_last_stage_fail(job, plan)
            )
            return query.compute_last_stage(df) if must_run_now else executed_plan(df)

        sink: ResultSink
        if command is None:
            sink = ResultSink(SPARK_WRITER if query.is_written else "rows", rows_of)
        else:
            sink = WriterSink(rows_of, command, config)
        self._observer.watch(job, bridge)
        if self._progress:
            stop_spark_progress_bar(bridge)
            job.watch(Progress(job.name, job.task_counts, job.display_name))
        with set_timeout(config.seconds(SOURCES_TIMEOUT)), active_session(bridge.session):
            output, has_strategies = PlannedOutput(query.plan, sink), bool(self._strategies)
            plan = plan_query(bridge, config, output, job.name, has_user_strategies=has_strategies)
            target: Sink = sink
            if isinstance(job, ShadowedJob):
                target = job.watch_query(query.plan, sink, query.call_site or "")
                job.record_plan(plan)
            sinks = {node_id: target.open(bridge.spark) for node_id in plan.sinks}
            job.start(bridge, plan, config, sinks, strategies_of(config, self._strategies), query.properties)
        job.wait()
        rows: PhysicalPlan = sink.value
        return rows


def _create_job(query: DelegatedQuery, origin: QueryOrigin, config: Configuration | ConfigError) -> Job:
    """Return the job of a query; a `ShadowedJob` if an option says to compare the rows with plain Spark."""
    mode = "NO" if isinstance(config, ConfigError) else config.get(SHADOW)
    name = _job_name(query, origin)
    if mode == "NO":
        return Job(name, origin)
    return ShadowedJob(query.bridge, name, raises=mode == "ROWS", origin=origin, properties=query.properties)


def _job_name(query: DelegatedQuery, origin: QueryOrigin) -> str:
    """Return the name of a query's job, which runs of unrelated queries should not share: runs are compared by name."""
    if origin.name == UNNAMED:
        return query.outline
    return f"cache for {origin.name}" if origin.name == origin.line and query.fills_cache else origin.name


def _nodes_of_last_vertex(job: Job, plan: JobPlan) -> set[int]:
    """Return the ids of the nodes in the vertex with the sink."""
    sinks = set(plan.sinks)
    return next(set(run.vertex.node_ids) for run in job.vertices if sinks & set(run.vertex.node_ids))


def _may_last_stage_fail(job: Job, plan: JobPlan) -> bool:
    """Whether the last stage does work that may fail, and that plain Spark does in an earlier stage.

    This is the case if an exchange of plain Spark is missing: DuckDB returns all rows in a single task, a strategy
    removed the exchange (the initial graph in `plan` still has it), or Spark added none at the end of a vertex whose
    rows are in a single task already; its `tasks` is None, and the tasks of the next vertex compute its rows.
    """
    nodes = _nodes_of_last_vertex(job, plan)
    lacks_exchange = any({e.source_id, e.target_id} <= nodes and not e.is_forward for e in plan.graph.edges)
    scans = [plan.sources[node_id].scan for node_id in nodes if node_id in plan.sources]
    is_native = any(isinstance(scan, NativeQuery) and scan.last_stage_may_fail for scan in scans)
    is_computed_late = any(run.tasks is None for run in job.vertices if nodes.isdisjoint(run.vertex.node_ids))
    return is_native or lacks_exchange or is_computed_late
