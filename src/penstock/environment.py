"""The user's entry point."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from pyspark.sql.types import StructType

from penstock.analysis import Analysis
from penstock.arguments import (
    check_data_frame,
    check_session,
    check_settings,
    check_text,
    check_type,
)
from penstock.commit import Access
from penstock.config import Configuration
from penstock.config.options import SHADOW, SOURCES_TIMEOUT
from penstock.connectors.base import DataFrameSinkProvider, Sink, Source, SourceProvider, checked_parallelism
from penstock.connectors.extras import secrets_of
from penstock.connectors.tables import sink_of_statement
from penstock.connectors.timeouts import timeout_of
from penstock.errors import ConfigError, PenstockError, SourceError
from penstock.explain import Explanation
from penstock.location import callers_line
from penstock.masking import mask_sql
from penstock.observer import Observer
from penstock.optimizer.given import check_strategies
from penstock.optimizer.optimizer import strategies_of
from penstock.plan_hints import PlanHint, with_hint
from penstock.planner.opening import abort_sinks, check_places, open_sinks, recover_sinks
from penstock.planner.outputs import Output, at_one_time
from penstock.planner.planner import plan_job
from penstock.planner.registered import Registered
from penstock.planner.run_wishes import compares_small_queries
from penstock.planner.whole_query import WholeQuery, plan_whole
from penstock.progress import Progress
from penstock.results import MaterializeSink, ResultSink, discard_rows
from penstock.scheduler.disk_space import warn_of_little_space
from penstock.scheduler.job import Job
from penstock.scheduler.origin import QueryOrigin
from penstock.shadow.job import ShadowedJob
from penstock.spark.dataframes import executed_plan_text, given_text, shown_rows
from penstock.spark.jobs import active_session
from penstock.spark.jvm import Bridge
from penstock.spark.local_dirs import local_dirs
from penstock.spark.session import embedded_session, penstock_settings
from penstock.spark.task_counts import stop_sparks_own_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    from penstock.optimizer.given import GivenStrategy
    from penstock.planner.plan import JobPlan


class Environment:
    """Runs DataFrames of a Spark session as jobs whose parallelism is decided while they run.

    Parameters
    ----------
    spark
        A classic Spark session; if None, the active one or an embedded one of this machine.
    config
        Options, see the reference of options.
    config_file
        A TOML file with further options.
    progress
        Whether to draw progress bars; if None, only on a terminal.
    strategies
        Further strategies that may reshape the plan while a job runs: classes, or objects and functions that then serve
        all jobs.
    ui
        Whether to serve the page and the REST API from this process; if None, what the option ``rest.enabled`` says.
    verify
        ``"rows"`` runs every query on plain Spark as well, and raises `RowsDifferError` where the rows differ; if None,
        what the option ``execution.shadow`` says. Queries run as they do without it, except that none is handed to
        Spark whole for its size, unless ``execution.batch.adaptive.whole-query-threshold`` is set.

    Raises
    ------
    SessionError
        If the session is a Spark Connect client, Spark's version is not supported, or there is no Java.
    ConfigError
        If an option is unknown or its value not allowed.

    Examples
    --------
    >>> env = Environment()                                     # doctest: +SKIP
    >>> flights = env.spark.read.parquet("flights/")            # doctest: +SKIP
    >>> env.collect(flights.groupBy("carrier").count())         # doctest: +SKIP
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        *,
        config: Mapping[str, object] | None = None,
        config_file: str | Path | None = None,
        progress: bool | None = None,
        strategies: Sequence[GivenStrategy] = (),
        ui: bool | None = None,
        verify: str | None = None,
    ) -> None:
        check_settings(config, "the config of Environment")
        check_strategies(strategies)
        if spark is not None:
            check_session(spark, "Environment")
        self.spark = embedded_session() if spark is None else spark
        self._bridge = Bridge(self.spark)
        self.config = self._configuration(config, config_file, verify)
        self._progress = sys.stderr.isatty() if progress is None else progress
        self._strategies = tuple(strategies)
        self._observer = Observer(self._bridge, self.config, ui)
        self._outputs = Registered()
        self.last_job: Job | None = None

    def _configuration(
        self, given: Mapping[str, object] | None, file: str | Path | None, verify: str | None
    ) -> Configuration:
        arguments = dict(given or {})
        if verify is not None:
            if verify != "rows":
                raise ConfigError.bad_value("verify", verify, '"rows", or leave it out', "Environment(verify=...)")
            arguments[SHADOW.key] = verify
        settings = penstock_settings(self._bridge)
        return Configuration.load(arguments, spark_conf=settings, file=file, environ=os.environ)

    @property
    def ui_url(self) -> str | None:
        """The address of the page, with the token that cancelling needs, or None if no page is served."""
        return None if self._observer.server is None else self._observer.server.url_with_token

    # -- in ------------------------------------------------------------------------------------------------------

    def read(self, source: Source | SourceProvider, parallelism: int | None = None) -> DataFrame:
        """Return a source's rows as a DataFrame. The source infers its parallelism when a job reads it.

        Parameters
        ----------
        source
            The source, or a provider of one.
        parallelism
            The number of tasks, instead of the inferred one.
        """
        static = None
        if isinstance(source, SourceProvider):
            static, source = source.parallelism, source.source
        if not isinstance(source, Source):
            raise SourceError(
                f"{source!r} is not a source", hint="give a penstock.connectors.Source", line=str(callers_line())
            )
        if parallelism is not None:
            parallelism = checked_parallelism(parallelism, source.name)
        with timeout_of(self.config.seconds(SOURCES_TIMEOUT)):
            df = source.read(self.spark)
        return with_hint(df, PlanHint(parallelism, static=static, source=source, location=callers_line()))

    def sql(self, statement: str, **arguments: Any) -> DataFrame:
        """Return the DataFrame of a Spark SQL statement; `arguments` fill its named parameters.

        ``INSERT`` and ``CREATE TABLE ... AS SELECT`` without arguments run as a job at once, if the table's rows are
        files that Spark writes, and the user may write to the folder above them. Other commands are Spark's, and run at
        once too.
        """
        check_text(statement, "sql", "a statement, which is a text")
        sink = None if arguments else sink_of_statement(Access(self._bridge), statement)
        if sink is not None:
            output = Output(sink.rows, sink, location=callers_line())
            self._run([output], _asked_for("sql"), f"write of {sink.name}")
            return self.spark.createDataFrame([], StructType([]))
        return self.spark.sql(statement, arguments or None)

    # -- out -----------------------------------------------------------------------------------------------------

    def write(self, df: DataFrame, sink: Sink | DataFrameSinkProvider, parallelism: int | None = None) -> None:
        """Register a sink. `execute` runs all registered sinks as one job, which does their common work once.

        Each thread registers its own sinks. `execute` runs those of its thread; if there are none, those of the others.

        Parameters
        ----------
        df
            The rows.
        sink
            The target. A `DataFrameSinkProvider` may add its own operators before it.
        parallelism
            The number of writing tasks. If None: the sink's own parallelism, or that of the operators before it.
        """
        check_data_frame(df, "write")
        if not isinstance(sink, Sink | DataFrameSinkProvider):
            raise PenstockError(
                f"{sink!r} is not a sink",
                hint="give a penstock.connectors.Sink, such as FileSink",
                line=str(callers_line()),
            )
        if parallelism is not None:
            parallelism = checked_parallelism(parallelism, f"sink {sink.name}")
        written = [(df, sink)] if isinstance(sink, Sink) else sink.consume_data_frame(df)
        line = callers_line()
        self._outputs.add([Output(rows, target, parallelism, line) for rows, target in written])

    def execute(self, name: str | None = None) -> Job:
        """Run all registered sinks as one job and wait for its end. Ctrl-C cancels the job.

        Parameters
        ----------
        name
            What the job is called; if None, by the line that asks for it, such as ``execute at job.py:12``.

        Raises
        ------
        SinkError
            If a target cannot be written. Nothing has run then.
        JobError
            If a vertex fails. No target shows rows of the job then.
        """
        _check_name(name, "execute")
        return self._run(self._registered(), _asked_for("execute"), name)

    def execute_async(self, name: str | None = None) -> Job:
        """Start all registered sinks as one job and return at once.

        Parameters
        ----------
        name
            As for `execute`.

        Raises
        ------
        SinkError
            If a target cannot be written. Nothing has run then.
        """
        _check_name(name, "execute_async")
        return self._start(self._registered(), _asked_for("execute_async"), name)

    def collect(self, df: DataFrame, *, name: str | None = None) -> list[Row]:
        """Return the rows of a DataFrame; `name` is what the job is called, as for `execute`."""
        check_data_frame(df, "collect")
        return list(self._fetch(df, ResultSink("collect", lambda d: d.collect()), name))

    def to_arrow(self, df: DataFrame, *, name: str | None = None) -> pa.Table:
        """Return a DataFrame's rows as an Arrow table; `name` is what the job is called, as for `execute`."""
        check_data_frame(df, "to_arrow")
        return self._fetch(df, ResultSink("to_arrow", lambda d: d.toArrow()), name)

    def to_pandas(self, df: DataFrame, *, name: str | None = None) -> pd.DataFrame:
        """Return a DataFrame's rows as a pandas DataFrame; `name` is what the job is called, as for `execute`."""
        check_data_frame(df, "to_pandas")
        return self._fetch(df, ResultSink("to_pandas", lambda d: d.toPandas()), name)

    def count(self, df: DataFrame, *, name: str | None = None) -> int:
        """Return the number of rows of a DataFrame; `name` is what the job is called, as for `execute`."""
        check_data_frame(df, "count")
        (row,) = self._fetch(df.groupBy().count(), ResultSink("count", lambda d: d.collect()), name)
        return int(row[0])

    def show(
        self,
        df: DataFrame,
        n: int = 20,
        truncate: bool | int = True,  # noqa: FBT001, FBT002 - as DataFrame.show has it
        vertical: bool = False,  # noqa: FBT001, FBT002
        *,
        name: str | None = None,
    ) -> None:
        """Print rows as ``DataFrame.show`` does; no more rows are computed than that needs.

        Parameters
        ----------
        df
            The rows.
        n
            How many are printed.
        truncate
            Whether long values are cut to 20 characters; or to how many.
        vertical
            Whether each column has a line of its own.
        name
            What the job is called, as for `execute`.
        """
        check_data_frame(df, "show")
        check_type(n, int, "show", "a number of rows", "as in env.show(df, 50)")
        check_type(truncate, int, "show", "True, False or a number of characters as truncate")
        check_type(vertical, bool, "show", "True or False as vertical")
        sink = ResultSink("show", partial(shown_rows, n, truncate, vertical))
        sys.stdout.write(f"{self._fetch(df.limit(max(n, 0) + 1), sink, name)}\n")

    def materialize(self, df: DataFrame, *, name: str | None = None) -> DataFrame:
        """Run a DataFrame and return one that reads the computed rows, with measured statistics.

        The rows are in Spark's shuffle files, and stay there as long as the returned DataFrame exists.

        Parameters
        ----------
        df
            The DataFrame.
        name
            What the job is called, as for `execute`.
        """
        check_data_frame(df, "materialize")
        result: DataFrame = self._fetch(df, MaterializeSink(), name)
        return result

    @overload
    def explain(self, df: DataFrame | None = None, *, analyze: Literal[False] = False) -> Explanation: ...

    @overload
    def explain(self, df: DataFrame | None = None, *, analyze: Literal[True]) -> Analysis: ...

    def explain(self, df: DataFrame | None = None, *, analyze: bool = False) -> Explanation | Analysis:
        """Return the plan and the decisions with their reasons.

        Parameters
        ----------
        df
            A DataFrame; if None, the registered sinks.
        analyze
            Whether to run it, and to return what came of each step beside what was foreseen. The rows are discarded,
            and no sink sees them. If False, no data is read.
        """
        if df is not None:
            check_data_frame(df, "explain")
        outputs = self._outputs.look() if df is None else [Output(df, ResultSink("collect", lambda d: d.collect()))]
        if not outputs:
            raise PenstockError("there is nothing to explain", hint="give a DataFrame, or register a sink first")
        if analyze:
            line = callers_line()
            job = self._run(
                [Output(one.df, ResultSink("nowhere", discard_rows), location=line) for one in outputs],
                _asked_for("explain"),
                None,
            )
            spark_plan = None if job.vertices else "\n".join(executed_plan_text(one.df) for one in outputs)
            return Analysis(job, spark_plan)
        strategies = strategies_of(self.config, self._strategies)
        with active_session(self._bridge.session):
            plan = self._planned(outputs, "explain")
            if isinstance(plan, WholeQuery):
                return Explanation.of_whole(plan, [output.df for output in outputs])
            return Explanation.of(self._bridge, self.config, plan, strategies)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def _fetch(self, df: DataFrame, sink: ResultSink, name: str | None) -> Any:
        self._run([Output(df, sink, location=callers_line())], _asked_for(sink.name), name)
        value, sink.value = sink.value, None
        return value

    def _registered(self) -> list[Output]:
        outputs = self._outputs.take()
        if not outputs:
            raise PenstockError("there is nothing to execute", hint="register a sink with Environment.write first")
        return outputs

    def _run(self, outputs: Sequence[Output], line: str, name: str | None) -> Job:
        """Start a job and wait for its end; Ctrl-C cancels it, also while it starts."""
        made: list[Job] = []
        try:
            return self._start(outputs, line, name, made.append).wait()
        except KeyboardInterrupt:
            for job in made:
                job.cancel("interrupted from the keyboard")
                job.wait_silently()
            raise

    def _start(
        self, outputs: Sequence[Output], line: str, name: str | None, made: Callable[[Job], None] = lambda _: None
    ) -> Job:
        # The text is for who watches; nobody else pays for asking.
        text = given_text(self._bridge, outputs[0].df) if self._observer.is_on and len(outputs) == 1 else None
        origin = QueryOrigin.of(text, line, name)
        with timeout_of(self.config.seconds(SOURCES_TIMEOUT)), active_session(self._bridge.session):
            return self._started(outputs, mask_sql(name or line), origin, made)

    def _started(self, outputs: Sequence[Output], name: str, origin: QueryOrigin, made: Callable[[Job], None]) -> Job:
        shadowed = self._shadowed_job(name)
        if shadowed is not None:
            outputs = shadowed.watched(outputs)
        check_places(outputs)
        recover_sinks(Access(self._bridge, secrets_of(output.sink.secrets for output in outputs)), outputs)
        opened = open_sinks(self.spark, outputs)
        try:
            strategies = strategies_of(self.config, self._strategies)
            outputs = at_one_time(self._bridge, outputs)
            plan = self._planned(outputs, name)
            job = Job(name) if shadowed is None else shadowed
            job.origin = origin
            made(job)
            self._observer.watch(job)
        except BaseException as error:
            abort_sinks(opened)
            if shadowed is not None and isinstance(error, Exception):
                shadowed.refused(error)
            raise
        self.last_job = job
        if isinstance(plan, WholeQuery):
            job.start_whole(self._bridge, outputs, opened, plan)
        else:
            if shadowed is not None:
                shadowed.planned(plan)
            if self._progress:
                stop_sparks_own_bar(self._bridge)
                job.watch(Progress(job.name, job.task_counts, job.called))
            warn_of_little_space(local_dirs(self._bridge), plan)
            sinks = dict(zip(plan.sinks, opened, strict=True))
            job.start(self._bridge, plan, self.config, sinks, strategies)
        return job

    def _planned(self, outputs: Sequence[Output], name: str) -> JobPlan | WholeQuery:
        has_own = bool(self._strategies)
        found = plan_whole(self._bridge, self.config, outputs, has_own_strategies=has_own)
        if isinstance(found, WholeQuery):
            if found.known_bytes is None or not compares_small_queries(self.config):
                return found
            found = None  # its rows would be Spark's own, which proves nothing of larger inputs
        return plan_job(self._bridge, self.config, outputs, name, found, has_own_strategies=has_own)

    def _shadowed_job(self, name: str) -> ShadowedJob | None:
        mode = self.config.get(SHADOW)
        return None if mode == "NO" else ShadowedJob(self._bridge, name, raises=mode == "ROWS")


def _check_name(name: str | None, call: str) -> None:
    if name is not None:
        check_text(name, call, "a name, which is a text")


def _asked_for(action: str) -> str:
    """Return an action with the user's line, as Spark names its jobs: ``collect at job.py:12``."""
    line = callers_line()
    return action if line is None else f"{action} at {line.short}"
