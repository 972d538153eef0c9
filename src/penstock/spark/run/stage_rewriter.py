"""The hook by which a native engine computes parts of a vertex's physical plan."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import PhysicalPlan, Session
    from penstock.spark.bridge.jvm import Bridge


class StageRewriter(Protocol):
    """Replaces parts of physical plans by operators of a native engine; if an operator fails, Spark runs the plan."""

    def rewrite(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Return `plan`, which has no exchanges yet, with replaced parts."""

    def fail_fast(self, bridge: Bridge) -> AbstractContextManager[None]:
        """End the jobs of the block at the first failure of the engine, regardless of ``spark.task.maxFailures``."""

    def handle_failure(self, bridge: Bridge, error: Exception) -> bool:
        """Return whether the engine may have raised `error`; if so, replace no more parts."""

    def disable_for_last_stage(self, final_plan: PhysicalPlan) -> bool:
        """Return whether the last stage has a replaced part, which has no fallback; if so, replace no more parts."""

    def report_rows(self, bridge: Bridge) -> None:
        """Record in the executed plan how many rows the engine has read; record its failures, too."""

    @property
    def rows_returned(self) -> int | None:
        """The number of rows that the engine has returned to the exchange of the executed plan; None if unknown."""
