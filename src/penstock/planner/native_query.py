"""A query that DuckDB computes completely or mostly in a single task, as a source of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE, NATIVE_MEMORY, VERIFY, WHOLE_QUERY_THRESHOLD
from penstock.decisions import DecisionKind, Explanation
from penstock.native.memory import machine_memory
from penstock.planner.draft import Note
from penstock.planner.spark_query import SparkQuery
from penstock.planner.user_settings import compares_small_queries, has_job_options, has_user_hints
from penstock.sizing.single_task import MIN_EXCHANGES, largest_single_task_input
from penstock.spark import catalyst, jobs
from penstock.spark.logical_plan import LARGE
from penstock.spark.native_failures import is_installed, unavailable_reason
from penstock.spark.native_query import NativePlan, exchange_count, native_plan
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


SINGLE_DUCKDB_TASK = "DuckDB, in one task"
"""The choice recorded for a query that DuckDB computes."""
_SMALL = "it is small, and its joins, aggregates and sorts cost Spark more than a task of DuckDB"
_VERIFY_NOTE = (
    ". execution.verify checks that each row of its result is read once and where the plan says; it does not check "
    "what DuckDB computes, which execution.shadow compares with plain Spark"
)
_MEMORY_DIVISOR = 4
"""DuckDB may use a quarter of the memory of the machine, besides the heap of Spark and the page cache."""


@dataclass(frozen=True, slots=True)
class TaskResources:
    """The resources of a query's task: bytes before it spills, cores of its executor, and ``execution.verify``."""

    memory: int
    threads: int
    is_checked: bool = False


class NativeQuery(SparkQuery):
    """The rows of a query that DuckDB computes, with Spark as the fallback."""

    def __init__(self, plan: NativePlan, task: TaskResources, reason: str) -> None:
        super().__init__(plan.plan, "DuckDB computes it in one task")
        self._native = plan
        self._native_reason = reason
        self._task = task
        self._failure = ""

    @property
    def name(self) -> str:
        """The tables that the query reads."""
        return ", ".join(self._native.tables)

    @property
    def fallback_reason(self) -> str:
        """Why Spark computed the query instead; empty if it did not."""
        return self._failure

    @property
    def last_stage_may_fail(self) -> bool:
        """Whether the operators that Spark runs on the rows of DuckDB may raise an error; they are a single stage."""
        return self._native.rest_may_fail and not self._failure

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run all stages of the query but the last; return the last stage as a leaf."""
        rows = self._native.rows(self._task.memory, self._task.threads, is_checked=self._task.is_checked)
        if not isinstance(rows, str):
            return rows
        self._failure = rows
        return super().leaf(session)

    def note(self) -> Note:
        """Return the decision that DuckDB computes the query."""
        size = self._native.size_in_bytes
        rest = (
            f"; Spark computes the rest ({', '.join(self._native.rest_reasons)})" if self._native.rest_reasons else ""
        )
        explanation = Explanation(
            f"one task of DuckDB computes {self.name}{rest}{_VERIFY_NOTE * self._task.is_checked}", NATIVE.key
        )
        return Note(
            self.name,
            SINGLE_DUCKDB_TASK,
            self._native_reason,
            DecisionKind.NATIVE,
            {"bytes in": size},
            lambda *_: explanation,
        )


def native_query(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> NativeQuery | Note | None:
    """Return a query that DuckDB should compute, a note why it should not, or None if it is not allowed.

    DuckDB computes a query if no option or hint controls how it runs, most of it has the same result as on Spark, its
    files are few enough for the cores of a single executor, and it is too large for Spark to be faster.
    """
    if not _is_enabled(bridge, config) or has_job_options(config):
        return None
    threshold = config.integer(WHOLE_QUERY_THRESHOLD)
    if threshold <= 0 or catalyst.leaf_bytes(plan) < threshold or has_user_hints(plan):
        return None
    unavailable = unavailable_reason(bridge)
    if unavailable is not None:
        return None if config.get(NATIVE) is None and not is_installed() else _declined(unavailable)
    native = native_plan(plan)
    if isinstance(native, str):
        return _declined(native)
    cores, task = jobs.cluster_cores(bridge), _task_resources(bridge, config)
    refusal = _too_large(native, threshold, largest_single_task_input(task.threads, cores))
    size = show_bytes(native.size_in_bytes)
    reason = f"DuckDB computes its {size} faster with the {task.threads} cores of one executor"
    return _declined(refusal) if refusal else NativeQuery(native, task, reason)


def small_native_query(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> NativeQuery | str:
    """Return a small query that DuckDB should compute completely, or the reason why it should not.

    Each part that DuckDB computes costs about as much as a small Spark query, so there must be exactly one part. The
    caller ensures that no option or hint controls how the query runs.
    """
    if not _is_enabled(bridge, config):
        return f"{NATIVE.key} is off"
    if exchange_count(plan) < MIN_EXCHANGES:
        return "it needs few exchanges"
    native = unavailable_reason(bridge) or native_plan(plan)
    if isinstance(native, str):
        return native
    if len(native.parts) > 1 or native.rest_in_bytes:
        return f"Spark would have to compute other parts ({', '.join(native.rest_reasons)})"
    return NativeQuery(native, _task_resources(bridge, config), _SMALL)


def session_query(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> SparkQuery | Note | None:
    """Return a query that an enabled session has delegated and that DuckDB or Spark computes, see `native_query`.

    A small query was delegated for DuckDB. Spark computes it if DuckDB does not support its files.
    """
    is_small = catalyst.leaf_bytes(plan) < config.integer(WHOLE_QUERY_THRESHOLD)
    if is_small and not has_job_options(config) and not has_user_hints(plan):
        native = small_native_query(bridge, config, plan)
        if isinstance(native, NativeQuery):
            return native
        if not compares_small_queries(config):
            return SparkQuery(plan, f"it is small, and DuckDB does not compute it: {native}")
    return native_query(bridge, config, plan)


def computes_small_queries(bridge: Bridge, config: Configuration) -> bool:
    """Whether options and installed packages allow DuckDB to compute small queries."""
    return _is_enabled(bridge, config) and unavailable_reason(bridge) is None


def _is_enabled(bridge: Bridge, config: Configuration) -> bool:
    return jobs.is_local(bridge) if config.get(NATIVE) is None else config.flag(NATIVE)


def _task_resources(bridge: Bridge, config: Configuration) -> TaskResources:
    threads = max(jobs.cluster_cores(bridge) // jobs.executor_count(bridge), 1)
    memory = threads * config.integer(NATIVE_MEMORY)
    if config.origin(NATIVE_MEMORY) == "default" and jobs.is_local(bridge):
        memory = max(memory, machine_memory() // _MEMORY_DIVISOR)
    return TaskResources(memory, threads, config.flag(VERIFY))


def _too_large(plan: NativePlan, threshold: int, limit: int | None) -> str:
    """Return why the input of a query is too large for DuckDB, or an empty string if it is not."""
    if plan.rest_in_bytes > threshold:
        size = show_bytes(plan.rest_in_bytes) if plan.rest_in_bytes < LARGE else "a table of unknown size"
        rest = f"Spark would also have to read {size}"
        return f"{rest} ({', '.join(plan.rest_reasons)})" if plan.rest_reasons else rest
    if limit is not None and plan.size_in_bytes > limit:
        size = show_bytes(plan.size_in_bytes)
        return f"its {size} exceed {show_bytes(limit)}, up to which the cores of one executor are faster"
    return ""


def _declined(reason: str) -> Note:
    explanation = Explanation(f"the query is not computed by one task of DuckDB: {reason}")
    return Note(
        "the query", "not in one task of DuckDB", reason, DecisionKind.NATIVE, explanation=lambda *_: explanation
    )
