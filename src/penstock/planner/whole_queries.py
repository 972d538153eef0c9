"""Queries that run as a whole, as sources of a job: in Spark unchanged, or in a native engine as a single task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE
from penstock.connectors.core.scan import Scan, Splitting
from penstock.decisions.log import DecisionKind, Explanation
from penstock.graph.labels import table_name
from penstock.planner.draft import DraftChoice
from penstock.spark.plans import catalyst
from penstock.spark.plans.logical_plan import MAX_ESTIMATE_BYTES, LogicalPlan
from penstock.spark.run.exchange import run_in_plain_spark

if TYPE_CHECKING:
    from penstock.engine.interface import EngineQuery, NativeEngine
    from penstock.spark.bridge.handles import Session

WHOLE_QUERY = "Query"
"""The name of a leaf that represents a whole query: one that Spark runs unchanged, or that an engine computes."""


class SparkQuery(Scan):
    """A query that Spark plans and runs unchanged, with the user's settings; `reason` says why, as a clause."""

    name: str = "Spark's own query"
    reason: str = ""
    is_divided_by_spark: bool = True

    def __init__(self, plan: LogicalPlan, reason: str) -> None:
        self._plan = plan
        self.reason = reason

    @property
    def size_in_bytes(self) -> int | None:
        """Spark's estimate of the bytes of all leaves, or None if Spark has no estimate for a leaf."""
        size = catalyst.leaf_bytes(self._plan)
        return size if size < MAX_ESTIMATE_BYTES else None

    def parallelism_source(self, user_source: object | None) -> None:
        """Return None: Spark sets the number of tasks."""

    def divide(self, parallelism: int) -> int:
        """Return `parallelism` unchanged: Spark divides the query."""
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:  # noqa: ARG002
        """Run all stages of the query but the last; return the last stage as a leaf."""
        return run_in_plain_spark(self._plan)

    def with_filters(self, plan: LogicalPlan) -> SparkQuery:  # noqa: ARG002
        """Return the query unchanged: it accepts no additional filters."""
        return self


_VERIFY_NOTE = (
    ". execution.verify checks that each row of its result is read once and where the plan says; it does not check "
    "what {} computes, which execution.shadow compares with plain Spark"
)


def single_task_choice(engine: NativeEngine) -> str:
    """Return the choice that is recorded for a query that an engine computes."""
    return f"{engine.name}, in one task"


@dataclass(frozen=True, slots=True)
class TaskResources:
    """A query's task: bytes of memory, threads, and whether ``execution.verify`` checks the rows that it returns."""

    memory: int
    threads: int
    is_checked: bool = False


class NativeQuery(SparkQuery):
    """A query that a native engine computes; if the engine fails, Spark runs it unchanged, like any `SparkQuery`."""

    fallback_reason: str = ""
    """Why Spark computed the query instead; empty if it did not."""

    def __init__(self, engine: NativeEngine, query: EngineQuery, task: TaskResources, reason: str) -> None:
        super().__init__(query.plan, f"reads the rows that {engine.name} computes in one task")
        self.name = ", ".join(map(table_name, query.tables))
        self._engine = engine
        self._native = query
        self._native_reason = reason
        self._task = task

    @property
    def last_stage_may_fail(self) -> bool:
        """Whether the operators that Spark runs on the engine's rows may raise an error; False after a fallback."""
        return self._native.rest_may_fail and not self.fallback_reason  # a fallback has the same stages as plain Spark

    def unchanged_splitting(self, reason: str) -> Splitting:  # noqa: ARG002
        """Return the decision that a single task computes the query, so that Spark divides nothing."""
        return Splitting(None, self.reason)

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run the engine's parts, and the operators above in Spark up to its last stage; return this stage as a leaf.

        If the engine fails, run all stages of the query but the last in Spark.
        """
        leaf_or_reason = self._native.rows(self._task.memory, self._task.threads, is_checked=self._task.is_checked)
        if not isinstance(leaf_or_reason, str):
            return leaf_or_reason
        self.fallback_reason = leaf_or_reason
        return super().leaf(session)

    def choice(self) -> DraftChoice:
        """Return the decision to compute the query with the engine."""
        reasons = self._native.rest_reasons
        rest = f"; Spark computes the rest ({', '.join(reasons)})" if reasons else ""
        verified = _VERIFY_NOTE.format(self._engine.name) if self._task.is_checked else ""
        sentence = f"one task of {self._engine.name} computes {self.name}, as {self._native_reason}{rest}{verified}"
        explanation = Explanation(sentence, NATIVE.key)
        chosen, figures = single_task_choice(self._engine), {"bytes in": self._native.size_in_bytes}
        return DraftChoice(self.name, chosen, self._native_reason, DecisionKind.NATIVE, figures, lambda *_: explanation)
