"""A query that DuckDB computes, all or most of it, in one task, as a source of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE, NATIVE_MEMORY, SHADOW, VERIFY, WHOLE_QUERY_THRESHOLD
from penstock.decisions import DecisionKind, Told
from penstock.native.memory import machine_memory
from penstock.planner.draft import Note
from penstock.planner.spark_query import SparkQuery
from penstock.planner.whole_query import options_say_how, plan_says_how
from penstock.sizing.one_task import largest_for_one_task
from penstock.spark import catalyst, jobs
from penstock.spark.native_query import NativePlan, native_plan
from penstock.units import show_bytes

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


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
    """

    memory: int
    threads: int


class NativeQuery(SparkQuery):
    """What a query gives when DuckDB computes it; Spark does if DuckDB fails.

    Parameters
    ----------
    plan
        What DuckDB computes of it.
    task
        What its task may use.
    """

    def __init__(self, plan: NativePlan, task: OneTask) -> None:
        super().__init__(plan.plan, "DuckDB computes it in one task")
        self._native = plan
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

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run the query but for its last stage; return that as a leaf."""
        found = self._native.rows(self._task.memory, self._task.threads)
        if not isinstance(found, str):
            return found
        self._failure = found
        return super().leaf(session)

    def note(self) -> Note:
        """Return what is recorded of the choice."""
        size = self._native.size_in_bytes
        reason = f"its {show_bytes(size)} are computed sooner with the {self._task.threads} cores of one executor"
        above = f"; Spark does the rest ({', '.join(self._native.why)})" if self._native.why else ""
        told = Told(f"one task of DuckDB computes {self.name}{above}", NATIVE.key)
        chosen = "DuckDB, in one task"
        return Note(self.name, chosen, reason, DecisionKind.NATIVE, {"bytes in": size}, lambda *_: told)


def native_query(bridge: Bridge, config: Configuration, plan: LogicalPlan) -> NativeQuery | None:
    """Return a query as DuckDB computes it, None if it should not.

    It does where nothing was said of how the query is to run, most of it is known to give what Spark gives, its files
    are few enough for the cores of one executor, and it is too large to be handed to Spark whole.
    """
    is_wanted = jobs.is_local(bridge) if config.get(NATIVE) is None else config.flag(NATIVE)
    if not is_wanted or config.flag(VERIFY) or config.get(SHADOW) != "NO" or options_say_how(config):
        return None
    threshold = config.integer(WHOLE_QUERY_THRESHOLD)
    if threshold <= 0 or catalyst.leaf_bytes(plan) < threshold or plan_says_how(plan):
        return None
    found = native_plan(plan)
    if isinstance(found, str) or found.rest_in_bytes > threshold:
        return None
    cores = jobs.cluster_cores(bridge)
    threads = max(cores // jobs.executor_count(bridge), 1)
    most = largest_for_one_task(threads, cores)
    if most is not None and found.size_in_bytes > most:
        return None
    memory = threads * config.integer(NATIVE_MEMORY)
    if config.origin(NATIVE_MEMORY) == "default" and jobs.is_local(bridge):
        memory = max(memory, machine_memory() // _OF_MACHINE)
    return NativeQuery(found, OneTask(memory, threads))
