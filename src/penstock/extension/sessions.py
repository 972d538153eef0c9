"""Enables and disables Penstock for the queries of Spark sessions."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.arguments import check_session, check_settings
from penstock.base.threads import call_at_exit
from penstock.config import Configuration
from penstock.config.options import ENABLED, SINK_PARALLELISM, SINK_TARGET_FILE_SIZE, WHOLE_QUERY_THRESHOLD
from penstock.engine.registry import native_engine
from penstock.entry.observer import Observer
from penstock.errors import SessionError
from penstock.extension.runner import JobRunner, configuration
from penstock.optimizer.user_strategies import UserStrategy, check_strategies
from penstock.planner.engine_choice import (
    JOB_OPTION_PREFIXES,
    compares_small_queries,
    computes_small_queries,
    has_job_options,
)
from penstock.sizing.single_task import MIN_EXCHANGES
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import embedded_session
from penstock.spark.run import query_hook

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.spark.run.query_hook import Service

ENABLED_SETTING = f"spark.penstock.{ENABLED.key}"


@dataclass(slots=True, eq=False)
class _Block:
    session: SparkSession
    setting_before: str | None
    service_before: Service | None


_OPEN: list[_Block] = []
_LOCK = threading.Lock()


def _end(bridge: Bridge, ended: _Block) -> None:
    """Pass the previous settings of a block to the next open block, or restore them if there is none."""
    index = _OPEN.index(ended)
    later, _ = _OPEN[index + 1 :], _OPEN.pop(index)
    if later:
        later[0].service_before = ended.service_before
    else:
        query_hook.use(bridge, ended.service_before)
    same_session = [block for block in later if query_hook.is_same_session(block.session, ended.session)]
    if same_session:
        same_session[0].setting_before = ended.setting_before
    elif ended.setting_before is None:
        ended.session.conf.unset(ENABLED_SETTING)
    else:
        ended.session.conf.set(ENABLED_SETTING, ended.setting_before)


def enable(
    spark: SparkSession | None = None,
    *,
    config: Mapping[str, object] | None = None,
    config_file: str | Path | None = None,
    strategies: Sequence[UserStrategy] = (),
    ui: bool | None = None,
    progress: bool = False,
) -> SparkSession:
    """Let Penstock run the queries of a Spark session, and of sessions that its application creates later.

    Nothing else changes in a program: DataFrame actions, writers, SQL statements and cached tables run as jobs when
    their rows are requested. Spark still runs some queries itself:

    - small queries, commands, and streams;
    - queries without a shuffle, unless they read a source that Penstock can split better, such as a database table;
    - queries with a sample, or with rand, monotonically_increasing_id or zipWithIndex directly on a source: their rows
      depend on Spark's partitions of the source;
    - queries of a session without adaptive execution, whose program can rely on the number of partitions.

    Parameters
    ----------
    spark
        A classic Spark session; if None, the active session or a new embedded local session.
    config
        Options for all queries, see the reference of options. Options of a single session are Spark settings with the
        prefix ``spark.penstock.``, which can change at any time.
    config_file
        A TOML file with more options.
    strategies
        Additional strategies that may change the plan while a query runs.
    ui
        Whether to serve the web page and the REST API from this process; if None, the option ``rest.enabled`` decides.
    progress
        Whether to show progress bars of queries on standard error instead of Spark's progress bars of stages.

    Returns
    -------
    SparkSession
        The session.

    Raises
    ------
    SessionError
        If the session is a Spark Connect client, Spark's version is unsupported, or PySpark does not pin threads.
    ConfigError
        If an option is unknown or its value is not allowed.

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
    strategies: Sequence[UserStrategy] = (),
    ui: bool | None = None,  # noqa: FBT001
    *,
    progress: bool = False,
) -> JobRunner:
    """Serve all sessions of an application whose setting ``enabled`` is not false; return their query runner."""
    bridge = Bridge(spark)
    file = None if config_file is None else str(config_file)
    options = configuration(bridge, config, file)
    runner = JobRunner(config, file, strategies, Observer(bridge, options, ui), progress=progress)
    # Options of a session are read when its queries are planned.
    shared_options = Configuration.load(config, file=file, environ=os.environ)
    threshold = 0 if compares_small_queries(shared_options) else shared_options.integer(WHOLE_QUERY_THRESHOLD)
    says_how = bool(strategies) or has_job_options(shared_options)
    has_sink_options = any(
        shared_options.origin(option) != "default" for option in (SINK_PARALLELISM, SINK_TARGET_FILE_SIZE)
    )
    engine = native_engine() if computes_small_queries(bridge, shared_options) else None
    service = query_hook.service(
        bridge,
        runner,
        threshold,
        JOB_OPTION_PREFIXES,
        delegates_small=says_how,
        min_exchanges=MIN_EXCHANGES,
        engine=None if engine is None else engine.whole_query_predicate(bridge),
        has_sink_options=has_sink_options,
    )
    query_hook.use(bridge, service)
    query_hook.install(bridge)
    _run_exit_queries_in_spark(bridge)
    return runner


def disable(spark: SparkSession | None = None) -> None:
    """Let Spark run the queries of a session again, from the next planned query on.

    `spark` is the session; if None, the active session.
    """
    _session(spark).conf.set(ENABLED_SETTING, "false")


@contextmanager
def enabled(spark: SparkSession | None = None, **options: object) -> Iterator[SparkSession]:
    """Let Penstock run the queries that are planned in the block; restore the previous state afterwards.

    Blocks of several threads may overlap. The options of the block that was entered last apply to all of them.

    `spark` is the session; if None, the active session. `options` are as in `enable`.
    """
    session = _session(spark)
    bridge = Bridge(session)
    with _LOCK:
        opened = _Block(session, session.conf.get(ENABLED_SETTING, None), query_hook.current(bridge))
        enable(session, **options)  # type: ignore[arg-type]
        _OPEN.append(opened)
    try:
        yield session
    finally:  # blocks of several threads may end in any order
        with _LOCK:
            _end(bridge, opened)


def _run_exit_queries_in_spark(bridge: Bridge) -> None:
    """Leave the queries of exit handlers to Spark: a job needs new threads, which cannot start then."""
    if _ENDING:
        return
    _ENDING.append(bridge)

    def end() -> None:
        with suppress(Exception):  # the JVM has already ended
            query_hook.end(bridge)

    call_at_exit(end)


_ENDING: list[Bridge] = []
"""The bridge that reports the end of the program, once registered."""


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    if spark is not None:
        check_session(spark, "spark")
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionError("there is no Spark session", hint="pass a session, or create it first")
    return session
