"""The protocols that a native engine implements.

An engine computes parts of a vertex's physical plan (*fragments*) in the tasks that Spark would run, and queries in a
single task (`EngineQuery`), except for operators at the top (the *rest*), which Spark computes. The engine must return
Spark's rows and errors, and decline a fragment or query if it cannot. If the engine fails, Spark computes the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.spark.run.stage_rewriter import StageRewriter

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.query_hook import QueryPredicate


class Fragment(Protocol):
    """A part of a plan that an engine computes or declines."""

    @property
    def table(self) -> str:
        """The table that the fragment reads; empty if it reads exchanged rows."""

    @property
    def declined_reason(self) -> str | None:
        """Why Spark computes the fragment, None if the engine does."""


class FragmentRewriter(StageRewriter, Protocol):
    """Replaces fragments of a vertex's physical plan by operators of the engine."""

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments of the plan that was rewritten last."""

    @property
    def failure(self) -> str | None:
        """Why Spark computes all fragments, None if the engine may be used."""

    def close(self) -> None:
        """Release the resources of the fragments after the vertex has run."""


class EngineQuery(Protocol):
    """An optimized query of which the engine computes parts, and Spark the operators above these parts (the *rest*)."""

    @property
    def plan(self) -> LogicalPlan:
        """The optimized plan."""

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables that the engine reads."""

    @property
    def size_in_bytes(self) -> int:
        """The size of the files that the engine reads."""

    @property
    def fragment_count(self) -> int:
        """The number of separate queries that the engine computes."""

    @property
    def rest_reasons(self) -> Sequence[str]:
        """Why Spark must compute the operators of the rest; empty if there is no rest."""

    @property
    def rest_size_in_bytes(self) -> int:
        """Spark's estimated size of the tables that the engine does not read."""

    @property
    def rest_may_fail(self) -> bool:
        """Whether the operators of the rest may raise an error."""

    def rows(self, memory: int, threads: int, *, is_checked: bool = False) -> LogicalPlan | str:
        """Compute the query; return a plan of its rows, whose last stage has not run, or why the engine failed.

        Raises `VerificationError` if a verification fails. `memory` is the number of bytes that the engine may use
        before it spills, and `threads` the number of threads. `is_checked` says whether to verify the rows that the
        engine passes to Spark.
        """


class NativeEngine(Protocol):
    """A native engine, registered by the entry point group ``penstock.engines``."""

    @property
    def name(self) -> str:
        """The name in decisions and messages."""

    def is_installed(self) -> bool:
        """Whether the driver has the packages of the engine, in any release."""

    def unavailable_reason(self, bridge: Bridge) -> str | None:
        """Return why the engine cannot be used in this application, None if no reason has been detected."""

    def local_memory(self) -> int:
        """Return the bytes that the engine may use on this machine, besides Spark."""

    def rewriter(self, memory: int, excluded: Sequence[str] = (), *, only_expensive: bool = False) -> FragmentRewriter:
        """Return a rewriter for the plans of a vertex; a task may use `memory` bytes before the engine spills.

        `excluded` are the names of expressions that Spark must compute, in lower case. `only_expensive` says whether
        Spark computes fragments that neither call Python functions nor parse JSON.
        """

    def whole_query_predicate(self, bridge: Bridge) -> QueryPredicate:
        """Return the predicate that tests whether the engine computes an optimized plan completely, as a single query.

        Spark's planner evaluates the predicate for small queries, so the predicate must not call Python.
        """

    def query(self, plan: LogicalPlan, excluded: Sequence[str] = ()) -> EngineQuery | str:
        """Return the parts of an optimized plan that the engine can compute, or why it can compute none.

        `excluded` are the names of expressions that Spark must compute, in lower case.
        """


@dataclass(frozen=True, slots=True)
class NativeExecution:
    """The engine that a job uses, and the bytes of memory that it may use in each task before it spills.

    `excluded` are the names of expressions that Spark must compute, in lower case.
    """

    engine: NativeEngine
    memory: int
    excluded: tuple[str, ...] = ()
    only_expensive: bool = False
    """Whether Spark computes fragments that neither call Python functions nor parse JSON."""

    def rewriter(self) -> FragmentRewriter:
        """Return a rewriter for the plans of a vertex."""
        return self.engine.rewriter(self.memory, self.excluded, only_expensive=self.only_expensive)
