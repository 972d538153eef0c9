"""Enables and disables Penstock for the queries of Spark sessions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
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
from penstock.sizing.single_task import min_exchanges
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.bridge.session import embedded_session
from penstock.spark.run import jobs, query_hook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.run.query_hook import Service

ENABLED_SETTING = f"spark.penstock.{ENABLED.key}"


@dataclass(slots=True, eq=False)
class _EnabledBlock:
    """An open block of `enabled`, with the session's setting and the application's query service before the block."""

    session: SparkSession
    setting_before: str | None
    service_before: Service | None


_OPEN_BLOCKS: list[_EnabledBlock] = []
_LOCK = threading.Lock()


def _close(bridge: Bridge, closed: _EnabledBlock) -> None:
    """Restore what was set before a block; if later blocks are open, the earliest of them restores it at its end."""
    index = _OPEN_BLOCKS.index(closed)
    later, _ = _OPEN_BLOCKS[index + 1 :], _OPEN_BLOCKS.pop(index)
    if later:
        later[0].service_before = closed.service_before
    else:
        query_hook.set_service(bridge, closed.service_before)
    same_session = [block for block in later if query_hook.is_same_session(block.session, closed.session)]
    if same_session:
        same_session[0].setting_before = closed.setting_before
    elif closed.setting_before is None:
        closed.session.conf.unset(ENABLED_SETTING)
    else:
        closed.session.conf.set(ENABLED_SETTING, closed.setting_before)


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

    >>> spark = penstock.enable(spark, config={"parallelism.default": 4})
    >>> spark.range(100).selectExpr("id % 7 AS k").groupBy("k").count().count()
    7

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
        If the session is a Spark Connect client, PySpark does not pin threads, or Spark or Java is not supported.
    ConfigError
        If an option is unknown or its value is not allowed.
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
    """Let Penstock run the queries of an application, except in sessions that disable it; return the runner."""
    bridge = Bridge(spark)
    file = None if config_file is None else str(config_file)
    options = configuration(bridge, config, file)
    runner = JobRunner(config, file, strategies, Observer(bridge, options, ui), progress=progress)
    # The service has the options for all sessions; those of a session are read when its queries are planned.
    shared_options = Configuration.load(config, file=file, environ=os.environ)
    threshold = 0 if compares_small_queries(shared_options) else shared_options.integer(WHOLE_QUERY_THRESHOLD)
    has_settings = bool(strategies) or has_job_options(shared_options)
    has_sink_options = any(
        shared_options.origin(option) != "default" for option in (SINK_PARALLELISM, SINK_TARGET_FILE_SIZE)
    )
    engine = native_engine() if computes_small_queries(bridge, shared_options) else None
    service = query_hook.create_service(
        bridge,
        runner,
        threshold,
        JOB_OPTION_PREFIXES,
        delegates_small=has_settings,
        min_exchanges=min_exchanges(is_local=jobs.is_local(bridge)),
        engine=None if engine is None else engine.whole_query_predicate(bridge),
        has_sink_options=has_sink_options,
    )
    query_hook.set_service(bridge, service)
    query_hook.install(bridge)
    _run_exit_queries_in_spark(bridge)
    return runner


def disable(spark: SparkSession | None = None) -> None:
    """Let Spark run the queries of a session again, from the next planned query on.

    `spark` is the session; if None, the active session.

    >>> penstock.disable(spark)
    >>> spark.conf.get("spark.penstock.enabled")
    'false'
    """
    _session(spark).conf.set(ENABLED_SETTING, "false")


@contextmanager
def enabled(spark: SparkSession | None = None, **options: object) -> Iterator[SparkSession]:
    """Let Penstock run the queries that are planned in the block; restore the previous state afterwards.

    Blocks of several threads may overlap. The options of the block that was entered last apply to all of them.

    `spark` is the session; if None, the active session. `options` are the other arguments of `enable`.

    >>> with penstock.enabled(spark):
    ...     spark.range(100).selectExpr("id % 2 AS parity").distinct().count()
    2
    """
    session = _session(spark)
    bridge = Bridge(session)
    with _LOCK:
        block = _EnabledBlock(session, session.conf.get(ENABLED_SETTING, None), query_hook.current_service(bridge))
        enable(session, **options)  # type: ignore[arg-type]
        _OPEN_BLOCKS.append(block)
    try:
        yield session
    finally:  # blocks of several threads may end in any order
        with _LOCK:
            _close(bridge, block)


def _run_exit_queries_in_spark(bridge: Bridge) -> None:
    """Let Spark run the queries of exit handlers: a job needs new threads, which cannot start during the exit."""
    if _EXIT_BRIDGE:
        return
    _EXIT_BRIDGE.append(bridge)

    def end() -> None:
        with suppress(Exception):  # the JVM may have ended already
            query_hook.end_delegation(bridge)

    call_at_exit(end)


_EXIT_BRIDGE: list[Bridge] = []
"""The bridge through which the end of the program is reported to the JVM; empty before the first call of `install`."""


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    if spark is not None:
        check_session(spark, "spark")
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionError("there is no Spark session", hint="pass a session, or create it first")
    return session
