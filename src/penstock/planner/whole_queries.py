"""Queries that Spark, or a native engine in a single task, computes completely, as sources of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config.options import NATIVE
from penstock.connectors.core.scan import Scan
from penstock.decisions.log import DecisionKind, Explanation
from penstock.planner.draft import Note
from penstock.spark.plans import catalyst
from penstock.spark.plans.logical_plan import LARGE, LogicalPlan
from penstock.spark.run.exchange import spark_rows

if TYPE_CHECKING:
    from penstock.engine.interface import EngineQuery, NativeEngine
    from penstock.spark.bridge.handles import Session

WHOLE_QUERY = "Query"
"""The name of a leaf that represents a whole query."""


class SparkQuery(Scan):
    """The rows of a query that Spark plans under the settings of the user, with its own tasks; and the reason."""

    name: str = "Spark's own query"
    reason: str = ""
    is_cut_by_spark: bool = True

    def __init__(self, plan: LogicalPlan, reason: str) -> None:
        self._plan = plan
        self.reason = reason

    @property
    def size_in_bytes(self) -> int | None:
        """Spark's estimate of the bytes of all leaves, or None if a leaf has none."""
        size = catalyst.leaf_bytes(self._plan)
        return size if size < LARGE else None

    def parallelism_source(self, user_source: object | None) -> None:
        """Return nothing: its tasks are Spark's."""

    def divide(self, parallelism: int) -> int:
        """Change nothing."""
        return parallelism

    def leaf(self, session: Session | None = None) -> LogicalPlan:  # noqa: ARG002
        """Run all stages of the query but the last; return the last stage as a leaf."""
        return spark_rows(self._plan)

    def with_filters(self, plan: LogicalPlan) -> SparkQuery:  # noqa: ARG002
        """Return itself: nothing filters it further."""
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
    """The resources of a query's task: bytes before it spills, cores of its executor, and ``execution.verify``."""

    memory: int
    threads: int
    is_checked: bool = False


class NativeQuery(SparkQuery):
    """The rows of a query that a native engine computes, with Spark as the fallback."""

    fallback_reason: str = ""
    """Why Spark computed the query instead; empty if it did not."""

    def __init__(self, engine: NativeEngine, query: EngineQuery, task: TaskResources, reason: str) -> None:
        super().__init__(query.plan, f"{engine.name} computes it in one task")
        self.name = ", ".join(query.tables)
        self._engine = engine
        self._native = query
        self._native_reason = reason
        self._task = task

    @property
    def last_stage_may_fail(self) -> bool:
        """Whether the operators that Spark runs on the engine's rows may raise an error; they are a single stage."""
        return self._native.rest_may_fail and not self.fallback_reason

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Run all stages of the query but the last; return the last stage as a leaf."""
        rows = self._native.rows(self._task.memory, self._task.threads, is_checked=self._task.is_checked)
        if not isinstance(rows, str):
            return rows
        self.fallback_reason = rows
        return super().leaf(session)

    def note(self) -> Note:
        """Return the decision that the engine computes the query."""
        reasons = self._native.rest_reasons
        rest = f"; Spark computes the rest ({', '.join(reasons)})" if reasons else ""
        verified = _VERIFY_NOTE.format(self._engine.name) if self._task.is_checked else ""
        explanation = Explanation(f"one task of {self._engine.name} computes {self.name}{rest}{verified}", NATIVE.key)
        chosen, figures = single_task_choice(self._engine), {"bytes in": self._native.size_in_bytes}
        return Note(self.name, chosen, self._native_reason, DecisionKind.NATIVE, figures, lambda *_: explanation)
