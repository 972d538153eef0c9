"""Decides how a query runs: unchanged on Spark, in a native engine, or in the steps of a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.config.options import NATIVE, NATIVE_MEMORY, SHADOW, SINK_PARALLELISM, VERIFY, WHOLE_QUERY_THRESHOLD
from penstock.decisions.log import DecisionKind, Explanation
from penstock.engine.registry import excluded_expressions, native_engine
from penstock.planner.draft import DraftChoice
from penstock.planner.plan import SparkPlan
from penstock.planner.sinks import config_of, sink_options
from penstock.planner.whole_queries import NativeQuery, SparkQuery, TaskResources
from penstock.sizing.single_task import largest_single_task_input, min_exchanges
from penstock.spark.plans import catalyst
from penstock.spark.plans.dataframes import hints_and_options
from penstock.spark.plans.logical_plan import MAX_ESTIMATE_BYTES, LogicalPlan
from penstock.spark.plans.planning import exchange_count
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.engine.interface import EngineQuery, NativeEngine
    from penstock.planner.outputs import Output
    from penstock.spark.bridge.jvm import Bridge

JOB_OPTION_PREFIXES = ("execution.batch.adaptive.", "parallelism.", "scan.", "sink.", "table.", "taskmanager.")
"""Key prefixes of options that only apply to steps of Penstock: with such an option, a query is divided into steps."""


def has_job_options(config: Configuration) -> bool:
    """Whether the user set an option that controls how the steps of a job run."""
    return any(
        option.key.startswith(JOB_OPTION_PREFIXES) and option is not WHOLE_QUERY_THRESHOLD and origin != "default"
        for option, _, origin in config.items()
    )


def compares_small_queries(config: Configuration) -> bool:
    """Whether a small query runs in steps so that its rows can be compared with those of plain Spark.

    So a comparison on a small sample tests the steps of larger inputs. If the user set the threshold, it still applies.
    """
    return config.get(SHADOW) != "NO" and config.origin(WHOLE_QUERY_THRESHOLD) == "default"


def computes_small_queries(bridge: Bridge, config: Configuration) -> bool:
    """Whether options and installed packages allow a native engine to compute small queries."""
    engine = native_engine()
    return engine is not None and _allows_native(bridge, config) and engine.unavailable_reason(bridge) is None


def _allows_native(bridge: Bridge, config: Configuration) -> bool:
    """Whether the option for native execution is on, or is not set and Spark runs locally."""
    return jobs.is_local(bridge) if config.get(NATIVE) is None else config.flag(NATIVE)


class EngineChoice:
    """The choice of how the only query of a job runs, from its size and the settings of the user.

    `plan` is the optimized plan. `unoptimized` returns the plan in which hints of the user are searched, because
    Spark's optimizer removes some hints.
    """

    def __init__(
        self, bridge: Bridge, config: Configuration, plan: LogicalPlan, unoptimized: Callable[[], LogicalPlan]
    ) -> None:
        self._bridge = bridge
        self._config = config
        self._plan = plan
        self._unoptimized = unoptimized
        self._threshold = config.integer(WHOLE_QUERY_THRESHOLD)
        self._has_job_options = has_job_options(config)

    @cached_property
    def _source_bytes(self) -> int:
        return catalyst.leaf_bytes(self._plan)

    @cached_property
    def _has_hints(self) -> bool:
        """Whether the plan contains hints of the user, or readers with an option that controls how they run."""
        hints, keys = hints_and_options(self._unoptimized())
        return bool(hints) or any(key.startswith("scan.") for key in keys)

    def for_output(self, output: Output) -> SparkPlan | NativeQuery | None:
        """Return a plan if Spark should run an output unchanged, or a small query that an engine should compute.

        Return None for any other query, such as a query whose sink sets the file size. Spark runs a query without user
        settings if its sources have fewer bytes than the threshold, or are bucketed so that a shuffle is saved.
        """
        if self._threshold <= 0 or self._has_job_options:
            return None
        is_small = self._source_bytes < self._threshold
        if not (is_small or catalyst.buckets_save_shuffle(self._plan)) or self._needs_steps(output):
            return None
        if not is_small:
            return SparkPlan([output], None, "its tables are bucketed by its keys, which saves a shuffle")
        native = self._small_query()
        if isinstance(native, NativeQuery):
            return native
        if compares_small_queries(self._config):
            return None  # a comparison of Spark with itself would not verify anything
        size, limit = show_bytes(self._source_bytes), show_bytes(self._threshold)
        return SparkPlan([output], self._source_bytes, f"its sources hold {size}, below the threshold of {limit}")

    def for_session(self) -> SparkQuery | DraftChoice | None:
        """Return a query that an engine or Spark should compute completely, or else the result of `large_query`.

        Called for a query that Spark has delegated to Penstock. Spark computes a small query if the engine does not
        support it, unless its rows are to be compared with those of plain Spark.
        """
        if self._source_bytes < self._threshold and not self._has_job_options and not self._has_hints:
            native = self._small_query()
            if isinstance(native, NativeQuery):
                return native
            if not compares_small_queries(self._config):
                engine = native_engine()
                name = "a native engine" if engine is None else engine.name
                return SparkQuery(self._plan, f"it is small, and {name} does not compute it: {native}")
        return self.large_query()

    def large_query(self) -> NativeQuery | DraftChoice | None:
        """Return the query if the engine should compute it, or the decision against it; None without a decision.

        The engine computes a query if no option or hint controls how it runs, and the tables that Spark must still read
        do not exceed the threshold. The input must be neither below the threshold, nor too large for a single executor.
        """
        if self._has_job_options or self._threshold <= 0 or self._source_bytes < self._threshold:
            return None
        if not _allows_native(self._bridge, self._config) or self._has_hints:
            return None
        engine = native_engine()
        is_requested = self._config.get(NATIVE) is not None
        if engine is None:
            return _refused_choice("a native engine", "none is installed") if is_requested else None
        unavailable = engine.unavailable_reason(self._bridge)
        if unavailable is not None:
            return _refused_choice(engine.name, unavailable) if is_requested or engine.is_installed() else None
        engine_query = engine.query(self._plan, excluded_expressions(self._config))
        if isinstance(engine_query, str):
            return _refused_choice(engine.name, engine_query)
        cores, task = jobs.cluster_cores(self._bridge), self._task_resources(engine)
        limit = largest_single_task_input(task.threads, cores)
        refusal = _too_large_reason(engine_query, self._threshold, limit)
        reason = _single_task_reason(engine_query, task.threads, limit)
        return _refused_choice(engine.name, refusal) if refusal else NativeQuery(engine, engine_query, task, reason)

    def _small_query(self) -> NativeQuery | str:
        """Return a small query that the engine should compute completely, or the reason why it should not.

        Each part that the engine computes costs about as much as a small Spark query, so there must be a single part.
        """
        if not _allows_native(self._bridge, self._config):
            is_set = self._config.get(NATIVE) is not None
            return f"{NATIVE.key} is off" if is_set else f"{NATIVE.key} is not set, and Spark does not run locally"
        if exchange_count(self._plan) < min_exchanges(is_local=jobs.is_local(self._bridge)):
            return "it needs few exchanges"
        engine = native_engine()
        if engine is None:
            return "no native engine is installed"
        query_or_reason = engine.unavailable_reason(self._bridge) or engine.query(
            self._plan, excluded_expressions(self._config)
        )
        if isinstance(query_or_reason, str):
            return query_or_reason
        if query_or_reason.fragment_count > 1 or query_or_reason.rest_size_in_bytes:
            return f"Spark would have to compute other parts ({', '.join(query_or_reason.rest_reasons)})"
        reason = f"it is small, and its joins, aggregates and sorts cost Spark more than a task of {engine.name}"
        return NativeQuery(engine, query_or_reason, self._task_resources(engine), reason)

    def _needs_steps(self, output: Output) -> bool:
        """Whether steps are needed: for hints, or for the parallelism, file size, stages or rereading of the sink."""
        sink, config = output.sink, config_of(self._bridge, self._config, output.sink)
        options = sink_options(config)
        return (
            config.origin(SINK_PARALLELISM) != "default"
            or sink.materialised
            or sink.file_size(options) is not None
            or bool(sink.stages(options))
            or output.parallelism is not None
            or sink.parallelism is not None
            or self._has_hints
        )

    def _task_resources(self, engine: NativeEngine) -> TaskResources:
        threads = max(jobs.cluster_cores(self._bridge) // jobs.executor_count(self._bridge), 1)
        memory = threads * self._config.integer(NATIVE_MEMORY)
        if self._config.origin(NATIVE_MEMORY) == "default" and jobs.is_local(self._bridge):
            memory = max(memory, engine.local_memory())
        return TaskResources(memory, threads, self._config.flag(VERIFY))


def _too_large_reason(query: EngineQuery, threshold: int, limit: int | None) -> str:
    """Return why the engine would read too much in a single task, or Spark for the rest of the query; else empty."""
    if query.rest_size_in_bytes > threshold:
        rest_bytes = query.rest_size_in_bytes
        size = show_bytes(rest_bytes) if rest_bytes < MAX_ESTIMATE_BYTES else "a table of unknown size"
        reason = f"Spark would also have to read {size}"
        return f"{reason} ({', '.join(query.rest_reasons)})" if query.rest_reasons else reason
    if limit is not None and query.size_in_bytes > limit:
        size = show_bytes(query.size_in_bytes)
        return f"its {size} exceed {show_bytes(limit)}, up to which the cores of one executor are faster"
    return ""


def _single_task_reason(query: EngineQuery, threads: int, limit: int | None) -> str:
    """Return why a single task should compute a query that is not small."""
    if limit is None:
        return f"one process of Spark has all cores ({threads}), so a task can use them and shuffles at most its result"
    size = show_bytes(query.size_in_bytes)
    return f"its {size} do not exceed {show_bytes(limit)}, up to which the cores of one executor are faster"


def _refused_choice(engine_name: str, reason: str) -> DraftChoice:
    explanation = Explanation(f"the query is not computed by one task of {engine_name}: {reason}")
    chosen = f"not in one task of {engine_name}"
    return DraftChoice("the query", chosen, reason, DecisionKind.NATIVE, explain=lambda *_: explanation)
