"""`Environment`, the entry point for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from pyspark.sql.types import StructType

from penstock.base.arguments import check_data_frame, check_session, check_settings, check_text
from penstock.base.location import current_user_line
from penstock.base.masking import mask_sql
from penstock.commit import Access
from penstock.config import Configuration
from penstock.config.options import SHADOW, SOURCES_TIMEOUT
from penstock.connectors.core.base import DataFrameSinkProvider, Sink, Source, SourceProvider, require_positive
from penstock.connectors.core.extras import merge_secrets
from penstock.connectors.core.timeouts import set_timeout
from penstock.connectors.tables.tables import sink_of_statement
from penstock.entry.observer import Observer
from penstock.entry.result_actions import ResultActions, job_line
from penstock.entry.results import ResultSink, discard_rows
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.hints.plan_hints import PlanHint, with_hint
from penstock.optimizer.optimizer import strategies_of
from penstock.optimizer.user_strategies import UserStrategy, check_strategies
from penstock.planner.opening import abort_sinks, check_locations, open_sinks, recover_sinks
from penstock.planner.outputs import Output, RegisteredOutputs
from penstock.planner.plan import JobPlan, SparkPlan
from penstock.planner.planner import plan_job
from penstock.report.analysis import Analysis
from penstock.report.explain import ExplainedPlan
from penstock.report.progress import Progress
from penstock.scheduler.failure import warn_of_little_space
from penstock.scheduler.job import Job
from penstock.scheduler.origin import QueryOrigin
from penstock.shadow.job import ShadowedJob
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import embedded_session, penstock_settings
from penstock.spark.plans.dataframes import executed_plan_text, sql_text
from penstock.spark.run.jobs import active_session, stop_spark_progress_bar
from penstock.spark.run.local_dirs import local_dirs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Environment(ResultActions):
    """Environment that runs DataFrames as jobs whose parallelism is decided while they run.

    >>> env = Environment(spark, config={"parallelism.default": 4})
    >>> flights = spark.createDataFrame([("AA", 7), ("BA", 2), ("AA", 5)], "carrier string, delay long")
    >>> env.collect(flights.groupBy("carrier").sum("delay").orderBy("carrier"))
    [Row(carrier='AA', sum(delay)=12), Row(carrier='BA', sum(delay)=2)]

    Parameters
    ----------
    spark
        A classic Spark session; if None, the active session, or else an embedded local one.
    config
        Options by key, see the reference of options.
    config_file
        A TOML file with more options.
    progress
        Whether to draw progress bars; if None, only on a terminal.
    strategies
        Your strategies, which may change the plan while a job runs: classes, instantiated for each job, or objects
        and functions, shared by all jobs.
    ui
        Whether to serve the web page and the REST API from this process; None to use the option ``rest.enabled``.
    verify
        ``"rows"`` turns on shadow mode (``execution.shadow``), not the verifier (``execution.verify``): every query
        also runs on plain Spark, and `RowsDifferError` is raised if the rows differ. Small queries are then executed
        by Penstock too, unless ``execution.batch.adaptive.whole-query-threshold`` is set. None to use the option.

    Raises
    ------
    SessionError
        If the session is a Spark Connect client, PySpark does not pin threads, or Spark or Java is not supported.
    ConfigError
        If an option is unknown or its value is not allowed.
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        config: Mapping[str, object] | None = None,
        config_file: str | Path | None = None,
        progress: bool | None = None,
        strategies: Sequence[UserStrategy] = (),
        ui: bool | None = None,
        verify: str | None = None,
    ) -> None:
        check_settings(config, "the config of Environment")
        check_strategies(strategies)
        if spark is not None:
            check_session(spark, "Environment")
        self.spark = embedded_session() if spark is None else spark
        self._bridge = Bridge(self.spark)
        arguments = dict(config or {})
        if verify is not None:
            if verify != "rows":
                raise ConfigError.bad_value("verify", verify, '"rows", or omit it', "Environment(verify=...)")
            arguments[SHADOW.key] = verify
        settings = penstock_settings(self._bridge)
        self.config = Configuration.load(arguments, spark_conf=settings, file=config_file, environ=os.environ)
        self._progress = sys.stderr.isatty() if progress is None else progress
        self._strategies = tuple(strategies)
        self._observer = Observer(self._bridge, self.config, ui)
        self._outputs = RegisteredOutputs()
        self.last_job: Job | None = None

    @property
    def ui_url(self) -> str | None:
        """The address of the web page, with the token that allows cancelling; None if no page is served.

        >>> print(env.ui_url)
        None
        """
        return None if self._observer.server is None else self._observer.server.url_with_token

    def read(self, source: Source | SourceProvider, parallelism: int | None = None) -> DataFrame:
        """Return the rows of a source as a DataFrame.

        The source infers its parallelism when a job reads it, unless `parallelism` sets it.

        >>> spark.range(100).write.parquet(f"{folder}/ids")
        >>> env.count(env.read(FileSource(f"{folder}/ids"), parallelism=2))
        100
        """
        source, static_parallelism = _source_and_parallelism(source)
        if parallelism is not None:
            parallelism = require_positive(parallelism, source.name)
        with set_timeout(self.config.seconds(SOURCES_TIMEOUT)):
            df = source.read(self.spark)
        hint = PlanHint(parallelism, static_parallelism=static_parallelism, source=source, location=current_user_line())
        return with_hint(df, hint)

    def sql(self, statement: str, **arguments: Any) -> DataFrame:
        """Return the DataFrame of a Spark SQL statement; `arguments` fill its named parameters.

        ``INSERT`` and ``CREATE TABLE ... AS SELECT`` without arguments run as a job at once, if Spark writes the
        table as files, and rows can be staged beside the table's folder. Spark runs other commands, also at once.

        >>> env.collect(env.sql("SELECT sum(id) AS total FROM range(5) WHERE id > :low", low=1))
        [Row(total=9)]
        """
        check_text(statement, "sql", "a statement, which is a text")
        sink = None if arguments else sink_of_statement(Access(self._bridge), statement)
        if sink is not None:
            output = Output(sink.rows, sink, location=current_user_line())
            self._run([output], job_line("sql"), f"write of {sink.name}")
            return self.spark.createDataFrame([], StructType([]))
        return self.spark.sql(statement, arguments or None)

    def write(self, df: DataFrame, sink: Sink | DataFrameSinkProvider, parallelism: int | None = None) -> None:
        """Register a sink. `execute` runs registered sinks as a single job, which computes common subplans only once.

        `execute` runs the sinks that its thread registered, or those of all threads if its thread registered none.

        >>> env.write(spark.range(10), FileSink(f"{folder}/ids"), parallelism=1)
        >>> print(env.execute().state)
        FINISHED

        Parameters
        ----------
        df
            The rows.
        sink
            The target, or a `DataFrameSinkProvider`, which may add operators before its targets.
        parallelism
            The number of writing tasks; None for that of the sink, or else that of the operators before the sink.
        """
        check_data_frame(df, "write")
        if not isinstance(sink, Sink | DataFrameSinkProvider):
            raise PenstockError(
                f"{sink!r} is not a sink",
                hint="pass a penstock.connectors.Sink, such as FileSink",
                line=str(current_user_line()),
            )
        if parallelism is not None:
            parallelism = require_positive(parallelism, f"sink {sink.name}")
        targets = [(df, sink)] if isinstance(sink, Sink) else sink.consume_data_frame(df)
        line = current_user_line()
        self._outputs.add([Output(rows, target, parallelism, line) for rows, target in targets])

    def execute(self, name: str | None = None) -> Job:
        """Run all registered sinks as a job and wait for its end. Ctrl-C cancels the job.

        >>> env.write(spark.range(3), FileSink(f"{folder}/ids"))
        >>> job = env.execute("nightly load")
        >>> print(job.name, job.state)
        nightly load FINISHED

        Parameters
        ----------
        name
            The name of the job; if None, the calling line, such as ``execute at job.py:12``.

        Raises
        ------
        SinkError
            If a target cannot be written; then nothing was run.
        JobError
            If a vertex fails; then no target has rows of the job.
        """
        return self._run(self._take_outputs(name, "execute"), job_line("execute"), name)

    def execute_async(self, name: str | None = None) -> Job:
        """Start all registered sinks as a job and return at once; `name` as for `execute`.

        >>> env.write(spark.range(3), FileSink(f"{folder}/ids"))
        >>> print(env.execute_async().wait().state)
        FINISHED

        Raises
        ------
        SinkError
            If a target cannot be written; then nothing was run.
        """
        return self._start(self._take_outputs(name, "execute_async"), job_line("execute_async"), name)

    @overload
    def explain(self, df: DataFrame | None = None, *, analyze: Literal[False] = False) -> ExplainedPlan: ...

    @overload
    def explain(self, df: DataFrame | None = None, *, analyze: Literal[True]) -> Analysis: ...

    def explain(self, df: DataFrame | None = None, *, analyze: bool = False) -> ExplainedPlan | Analysis:
        """Return the plan of `df`, or of the registered sinks if it is None, and the decisions with their reasons.

        By default, no data is read. With `analyze`, the query runs, and the result has the actual values of each step
        beside the estimates. The rows are discarded; sinks are not written.

        >>> print(env.explain(spark.range(9).selectExpr("id % 2 AS parity").groupBy("parity").count()))
        Plan before it runs. ...
          return rows
            aggregate by parity
              shuffled by parity: range, Spark splits this source itself
        """
        if df is not None:
            check_data_frame(df, "explain")
        outputs = self._outputs.peek() if df is None else [Output(df, ResultSink("collect", lambda d: d.collect()))]
        if not outputs:
            raise PenstockError("there is nothing to explain", hint="pass a DataFrame, or register a sink first")
        if analyze:
            line = current_user_line()
            discarded = [Output(output.df, ResultSink("nowhere", discard_rows), location=line) for output in outputs]
            job = self._run(discarded, job_line("explain"), None)
            spark_plan = None if job.vertices else "\n".join(executed_plan_text(output.df) for output in outputs)
            return Analysis(job, spark_plan)
        strategies = strategies_of(self.config, self._strategies)
        with active_session(self._bridge.session):
            plan = self._plan(outputs, "explain")
            if isinstance(plan, SparkPlan):
                return ExplainedPlan.of_spark(plan)
            return ExplainedPlan.of(self._bridge, self.config, plan, strategies)

    def _take_outputs(self, name: str | None, call: str) -> list[Output]:
        if name is not None:
            check_text(name, call, "a name, which is a text")
        outputs = self._outputs.take()
        if not outputs:
            raise PenstockError("there is nothing to execute", hint="register a sink with Environment.write first")
        return outputs

    def _run(self, outputs: Sequence[Output], line: str, name: str | None) -> Job:
        """Start a job and wait for its end; Ctrl-C cancels it, also while it starts."""
        created: list[Job] = []
        try:
            return self._start(outputs, line, name, created.append).wait()
        except KeyboardInterrupt:
            for job in created:
                job.cancel("interrupted from the keyboard")
                job.wait_silently()
            raise

    def _start(
        self, outputs: Sequence[Output], line: str, name: str | None, on_created: Callable[[Job], None] = lambda _: None
    ) -> Job:
        # Reading the SQL text takes time, and only the record of a job contains it: read it only if jobs are recorded.
        text = sql_text(self._bridge, outputs[0].df) if self._observer.is_on and len(outputs) == 1 else None
        origin = QueryOrigin.of(text, line, name)
        with set_timeout(self.config.seconds(SOURCES_TIMEOUT)), active_session(self._bridge.session):
            return self._start_in_session(outputs, mask_sql(name or line), origin, on_created)

    def _start_in_session(
        self, outputs: Sequence[Output], name: str, origin: QueryOrigin, on_created: Callable[[Job], None]
    ) -> Job:
        shadow_mode = self.config.get(SHADOW)
        shadowed = None if shadow_mode == "NO" else ShadowedJob(self._bridge, name, raises=shadow_mode == "ROWS")
        if shadowed is not None:
            outputs = shadowed.watch_outputs(outputs)
        check_locations(outputs)
        recover_sinks(Access(self._bridge, merge_secrets(output.sink.secrets for output in outputs)), outputs)
        sink_jobs = open_sinks(self.spark, outputs)
        try:
            strategies = strategies_of(self.config, self._strategies)
            plan = self._plan(outputs, name)
            job = Job(name) if shadowed is None else shadowed
            job.origin = origin
            on_created(job)
            self._observer.watch(job)
        except BaseException as error:
            abort_sinks(sink_jobs)
            if shadowed is not None and isinstance(error, Exception):
                shadowed.compare_planning_error(error)
            raise
        self.last_job = job
        if isinstance(plan, SparkPlan):
            job.start_whole(self._bridge, plan, sink_jobs)
        else:
            if shadowed is not None:
                shadowed.record_plan(plan)
            if self._progress:
                stop_spark_progress_bar(self._bridge)
                job.watch(Progress(job.name, job.task_counts, job.display_name))
            warn_of_little_space(local_dirs(self._bridge), plan)
            sinks = dict(zip(plan.sinks, sink_jobs, strict=True))
            job.start(self._bridge, plan, self.config, sinks, strategies)
        return job

    def _plan(self, outputs: Sequence[Output], name: str) -> SparkPlan | JobPlan:
        return plan_job(self._bridge, self.config, outputs, name, has_user_strategies=bool(self._strategies))


def _source_and_parallelism(source: Source | SourceProvider) -> tuple[Source, int | None]:
    provided = (source.source, source.parallelism) if isinstance(source, SourceProvider) else (source, None)
    if not isinstance(provided[0], Source):
        raise SourceError(
            f"{provided[0]!r} is not a source", hint="pass a penstock.connectors.Source", line=str(current_user_line())
        )
    return provided
