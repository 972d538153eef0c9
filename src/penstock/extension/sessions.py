"""Lets the queries of Spark sessions run as jobs, and lets them be again."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.arguments import check_session, check_settings
from penstock.config import Configuration
from penstock.config.options import SINK_PARALLELISM, SINK_TARGET_FILE_SIZE, WHOLE_QUERY_THRESHOLD
from penstock.errors import SessionError
from penstock.extension.blocks import ENABLED_SETTING, block
from penstock.extension.runner import JobRunner, configuration
from penstock.observer import Observer
from penstock.optimizer.given import GivenStrategy, check_strategies
from penstock.planner.native_query import computes_small_queries
from penstock.planner.run_wishes import HOW_JOBS_RUN, compares_small_queries, options_say_how
from penstock.sizing.one_task import FEWEST_EXCHANGES
from penstock.spark import query_hook
from penstock.spark.jvm import Bridge
from penstock.spark.session import embedded_session
from penstock.threads import call_at_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


def enable(
    spark: SparkSession | None = None,
    *,
    config: Mapping[str, object] | None = None,
    config_file: str | Path | None = None,
    strategies: Sequence[GivenStrategy] = (),
    ui: bool | None = None,
    progress: bool = False,
) -> SparkSession:
    """Let Penstock run the queries of a Spark session, and of sessions of its application that are made later.

    Nothing else changes in a program: DataFrame actions, writers, SQL statements and cached tables run as jobs when
    their rows are asked for. Some queries are left to Spark; that is decided inside Spark:

    - small ones, commands, and streams;
    - those without a shuffle, unless they read what Penstock can divide better, such as a table of a database;
    - those with a sample, or with rand, monotonically_increasing_id or zipWithIndex of rows as they are read: what they
      give depends on the partitions in which Spark reads;
    - those of a session without adaptive execution, of which a program knows the number of partitions.

    Parameters
    ----------
    spark
        A classic Spark session; if None, the active one or an embedded one of this machine.
    config
        Options for all queries, see the reference of options. Options of a single session are Spark settings that
        begin with ``spark.penstock.``; they can change at any time.
    config_file
        A TOML file with further options.
    strategies
        Further strategies that may reshape the plan while a query runs.
    ui
        Whether to serve the page and the REST API from this process; if None, what the option ``rest.enabled`` says.
    progress
        Whether to draw how far queries have come, on standard error, instead of Spark's own bars of stages.

    Returns
    -------
    SparkSession
        The session.

    Raises
    ------
    SessionError
        If the session is a Spark Connect client, Spark's version is not supported, or PySpark does not pin threads.
    ConfigError
        If an option is unknown or its value not allowed.

    Examples
    --------
    >>> penstock.enable(spark)                                  # doctest: +SKIP
    >>> spark.read.parquet("flights").groupBy("carrier").count().show()     # doctest: +SKIP
    """
    check_settings(config, "the config of enable")
    check_strategies(strategies)
    if spark is not None:
        check_session(spark, "enable")
    spark = embedded_session() if spark is None else spark
    install(spark, config or {}, config_file, strategies, ui, progress=progress)
    spark.conf.set(ENABLED_SETTING, "true")
    return spark


def install(
    spark: SparkSession,
    config: Mapping[str, object],
    config_file: str | Path | None = None,
    strategies: Sequence[GivenStrategy] = (),
    ui: bool | None = None,  # noqa: FBT001
    *,
    progress: bool = False,
) -> JobRunner:
    """Serve a session and those made later, unless their setting ``enabled`` says no; return what runs queries."""
    bridge = Bridge(spark)
    file = None if config_file is None else str(config_file)
    options = configuration(bridge, config, file)
    runner = JobRunner(config, file, strategies, Observer(bridge, options, ui), progress=progress)
    # Those of sessions are read where their queries are planned, as they are then.
    of_all = Configuration.load(config, file=file, environ=os.environ)
    threshold = 0 if compares_small_queries(of_all) else of_all.integer(WHOLE_QUERY_THRESHOLD)
    says_how = bool(strategies) or options_say_how(of_all)
    of_sinks = any(of_all.origin(option) != "default" for option in (SINK_PARALLELISM, SINK_TARGET_FILE_SIZE))
    service = query_hook.service(
        bridge,
        runner,
        threshold,
        HOW_JOBS_RUN,
        takes_small=says_how,
        fewest_exchanges=FEWEST_EXCHANGES if computes_small_queries(bridge, of_all) else 0.0,
        divides_writes=of_sinks,
    )
    query_hook.use(bridge, service)
    query_hook.install(bridge)
    _leave_to_spark_at_end(bridge)
    return runner


def disable(spark: SparkSession | None = None) -> None:
    """Let Spark run the queries of a session again, from the next one that is planned.

    Parameters
    ----------
    spark
        The session; if None, the active one.
    """
    _session(spark).conf.set(ENABLED_SETTING, "false")


@contextmanager
def enabled(spark: SparkSession | None = None, **options: object) -> Iterator[SparkSession]:
    """Let Penstock run the queries that are planned in the block; afterwards everything is as it was.

    Blocks of several threads may overlap. The options of the one that was entered last hold for all of them.

    Parameters
    ----------
    spark
        The session; if None, the active one.
    options
        As of `enable`.
    """
    found = _session(spark)
    with block(Bridge(found), lambda: enable(found, **options)) as session:  # type: ignore[arg-type]
        yield session


def _leave_to_spark_at_end(bridge: Bridge) -> None:
    """See to it, once, that Spark runs the queries that a program asks for at its exit: a job needs new threads."""
    if _ENDING:
        return
    _ENDING.append(bridge)

    def end() -> None:
        with suppress(Exception):  # the JVM has ended before
            query_hook.end(bridge)

    call_at_end(end)


_ENDING: list[Bridge] = []
"""The bridge by which the end is told, once it will be."""


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    if spark is not None:
        check_session(spark, "spark")
    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise SessionError("there is no Spark session", hint="give one, or make one first")
    return found
