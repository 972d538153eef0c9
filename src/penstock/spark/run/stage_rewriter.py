"""The hook by which a native engine computes parts of a vertex's physical plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from penstock.spark.bridge.handles import PhysicalPlan, Session
    from penstock.spark.bridge.jvm import Bridge


class StageRewriter(Protocol):
    """Replaces parts of physical plans; if they fail at run time, Spark computes the same rows."""

    def rewrite(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Return a physical plan with parts replaced; it has no exchanges yet."""

    def fail_fast(self, bridge: Bridge) -> AbstractContextManager[None]:
        """End the jobs of the block at the first failure of the engine, regardless of ``spark.task.maxFailures``."""

    def handle_failure(self, bridge: Bridge, error: Exception) -> bool:
        """Replace nothing from now on if an error may come from the engine; return whether it may."""

    def declines_last_stage(self, above: PhysicalPlan) -> bool:
        """Replace nothing from now on if the last stage has a replaced part, which Spark could not compute again."""

    def report_rows(self, bridge: Bridge) -> None:
        """Report the rows that the engine has read to the plan that has run, and record failures."""

    @property
    def rows_returned(self) -> int | None:
        """The rows that the engine has returned to the exchange of the plan that has run; None if that is unknown."""
