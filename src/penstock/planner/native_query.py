"""A query that DuckDB computes, all or most of it, in one task, as a source of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE, NATIVE_MEMORY, VERIFY, WHOLE_QUERY_THRESHOLD
from penstock.decisions import DecisionKind, Told
from penstock.native.memory import machine_memory
from penstock.planner.draft import Note
from penstock.planner.run_wishes import compares_small_queries, options_say_how, plan_says_how
from penstock.planner.spark_query import SparkQuery
from penstock.sizing.one_task import FEWEST_EXCHANGES, largest_for_one_task
from penstock.spark import catalyst, jobs
from penstock.spark.logical_plan import LARGE
from penstock.spark.native_failures import is_installed, missing
from penstock.spark.native_query import NativePlan, exchange_count, native_plan
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


IN_ONE_TASK = "DuckDB, in one task"
"""What is chosen for a query that DuckDB computes."""
_SMALL = "it is small, and its joins, groups and sorts cost Spark more than a task of DuckDB does"
_CHECKED = (
    ". execution.verify checks that each row of its result is read once and where the plan says; it does not check "
    "what DuckDB computes, which execution.shadow compares with plain Spark"
)
_OF_MACHINE = 4
"""The part of a machine's memory that DuckDB may use: Spark's heap has a part, and the system's cache of files."""


@dataclass(frozen=True, slots=True)
class OneTask:
    """What the one task of a query may use.

    Parameters
    ----------
    memory
        Bytes that DuckDB may use before it spills.
    threads
        The cores of its executor.
    is_checked
        Whether each row that DuckDB gives is checked to be read once, and where the plan says (``execution.verify``).
    """

    memory: int
    threads: int
    is_checked: bool = False


class NativeQuery(SparkQuery):
    """What a query gives when DuckDB computes it; Spark does if DuckDB fails.

    Parameters
    ----------
    plan
        What DuckDB computes of it.
    task
        What its task may use.
    reason
        Why DuckDB computes it.
    """

    def __init__(self, plan: NativePlan, task: OneTask, reason: str) -> None:
        super().__init__(plan.plan, "DuckDB computes it in one task")
        self._native = plan
        self._why = reason
        self._task = task
        self._failure = ""

    @property
    def name(self) -> str:
        """The tables that it reads."""
        return ", ".join(self._native.tables)

    @property
    def came_otherwise(self) -> str:
        """Why Spark has computed it, empty if it has not."""
        return self._failure

    @property
    def last_stage_may_fail(self) -> bool:
        """Whether what Spark computes of DuckDB's rows may raise an error; it is one stage, as one task has them."""
        return self._native.rest_may_fail and not self._failure

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run the query but for its last stage; return that as a leaf."""
        found = self._native.rows(self._task.memory, self._task.threads, is_checked=self._task.is_checked)
        if not isinstance(found, str):
            return found
        self._failure = found
        return super().leaf(session)

    def note(self) -> Note:
        """Return what is recorded of the choice."""
        size = self._native.size_in_bytes
        above = f"; Spark does the rest ({', '.join(self._native.why)})" if self._native.why else ""
        told = Told(f"one task of DuckDB computes {self.name}{above}{_CHECKED * self._task.is_checked}", NATIVE.key)
        return Note(self.name, IN_ONE_TASK, self._why, DecisionKind.NATIVE, {"bytes in": size}, lambda *_: told)


def native_query(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> NativeQuery | Note | None:
    """Return a query as DuckDB computes it, what is recorded of why it should not, or None if nobody wants it to.

    It does where nothing was said of how the query is to run, most of it is known to give what Spark gives, its files
    are few enough for the cores of one executor, and it is too large for Spark to run it sooner.
    """
    if not _is_wanted(bridge, config) or options_say_how(config):
        return None
    threshold = config.integer(WHOLE_QUERY_THRESHOLD)
    if threshold <= 0 or catalyst.leaf_bytes(plan) < threshold or plan_says_how(plan):
        return None
    lacking = missing(bridge)
    if lacking is not None:
        return None if config.get(NATIVE) is None and not is_installed() else _declined(lacking)
    found = native_plan(plan)
    if isinstance(found, str):
        return _declined(found)
    cores, task = jobs.cluster_cores(bridge), _one_task(bridge, config)
    why = _too_large(found, threshold, largest_for_one_task(task.threads, cores))
    reason = f"its {show_bytes(found.size_in_bytes)} are computed sooner with the {task.threads} cores of one executor"
    return _declined(why) if why else NativeQuery(found, task, reason)


def small_native_query(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> NativeQuery | str:
    """Return a query that is small enough to be handed to Spark whole as DuckDB computes it, or why it does not.

    Each part of DuckDB's costs about as much as a small query of Spark's, so there must be one. The caller knows that
    nothing was said of how it is to run.
    """
    if not _is_wanted(bridge, config):
        return "nobody wants it to"
    if exchange_count(plan) < FEWEST_EXCHANGES:
        return "Spark exchanges few rows for it"
    found = missing(bridge) or native_plan(plan)
    if isinstance(found, str):
        return found
    if len(found.parts) > 1 or found.rest_in_bytes:
        return f"Spark would have to do more besides ({', '.join(found.why)})"
    return NativeQuery(found, _one_task(bridge, config), _SMALL)


def query_of_session(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> SparkQuery | Note | None:
    """Return a query that an enabled session has given up as DuckDB or Spark compute it whole; see `native_query`.

    A small one was given up for DuckDB's sake. It is Spark's all the same if DuckDB does not take it for its files.
    """
    is_small = catalyst.leaf_bytes(plan) < config.integer(WHOLE_QUERY_THRESHOLD)
    if is_small and not options_say_how(config) and not plan_says_how(plan):
        found = small_native_query(bridge, config, plan)
        if isinstance(found, NativeQuery):
            return found
        if not compares_small_queries(config):
            return SparkQuery(plan, f"it is small, and not for DuckDB: {found}")
    return native_query(bridge, config, plan)


def computes_small_queries(bridge: Bridge, config: Configuration) -> bool:
    """Whether DuckDB computes small queries, as far as options and packages let it."""
    return _is_wanted(bridge, config) and missing(bridge) is None


def _is_wanted(bridge: Bridge, config: Configuration) -> bool:
    return jobs.is_local(bridge) if config.get(NATIVE) is None else config.flag(NATIVE)


def _one_task(bridge: Bridge, config: Configuration) -> OneTask:
    """Return what the task of a query may use."""
    threads = max(jobs.cluster_cores(bridge) // jobs.executor_count(bridge), 1)
    memory = threads * config.integer(NATIVE_MEMORY)
    if config.origin(NATIVE_MEMORY) == "default" and jobs.is_local(bridge):
        memory = max(memory, machine_memory() // _OF_MACHINE)
    return OneTask(memory, threads, config.flag(VERIFY))


def _too_large(plan: NativePlan, threshold: int, most: int | None) -> str:
    """Return why what a query reads is too much, empty if it is not."""
    if plan.rest_in_bytes > threshold:
        size = show_bytes(plan.rest_in_bytes) if plan.rest_in_bytes < LARGE else "a table of unknown size"
        rest = f"Spark would have {size} to read besides"
        return f"{rest} ({', '.join(plan.why)})" if plan.why else rest
    if most is not None and plan.size_in_bytes > most:
        size = show_bytes(plan.size_in_bytes)
        return f"its {size} are more than {show_bytes(most)}, which the cores of one executor compute sooner"
    return ""


def _declined(why: str) -> Note:
    """Return what is recorded of a query that is not computed in one task."""
    explanation = Told(f"the query is not computed by one task of DuckDB: {why}")
    return Note("the query", "not in one task of DuckDB", why, DecisionKind.NATIVE, told=lambda *_: explanation)
