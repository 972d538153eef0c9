"""DuckDB as a native engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.duckdb import failures
from penstock.duckdb.parts import NativeParts
from penstock.duckdb.query import NativePlan, native_plan
from penstock.duckdb.worker.memory import machine_memory
from penstock.spark.run.query_hook import QueryPredicate

if TYPE_CHECKING:
    from penstock.engine.interface import NativeEngine
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan

_MEMORY_DIVISOR = 4
"""DuckDB may use a quarter of the memory of the machine, besides the heap of Spark and the page cache."""


class DuckDb:
    """Runs DuckDB in Spark's Python workers."""

    name = "DuckDB"

    def is_installed(self) -> bool:
        """Whether the driver has the package ``duckdb``, in any release."""
        return failures.is_installed()

    def unavailable_reason(self, bridge: Bridge) -> str | None:
        """Return why DuckDB cannot be used at all; None if no reason is recorded."""
        return failures.unavailable_reason(bridge)

    def local_memory(self) -> int:
        """Return the bytes that DuckDB may use on this machine."""
        return machine_memory() // _MEMORY_DIVISOR

    def rewriter(self, memory: int) -> NativeParts:
        """Return a rewriter for the plans of a vertex."""
        return NativeParts(memory)

    def whole_query_predicate(self, bridge: Bridge) -> QueryPredicate:
        """Return the condition that DuckDB computes an optimised plan completely, as a single query."""
        return QueryPredicate(bridge, bridge.helper("NativeQueries"))

    def query(self, plan: LogicalPlan) -> NativePlan | str:
        """Return the parts of an optimised plan that DuckDB can compute, or why there are none."""
        return native_plan(plan)


ENGINE: NativeEngine = DuckDb()
