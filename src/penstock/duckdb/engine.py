"""DuckDB as a native engine."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from penstock.duckdb.expressions.registry import helper
from penstock.duckdb.failures import unavailable_reason
from penstock.duckdb.parts import NativeParts
from penstock.duckdb.query import NativePlan, native_plan
from penstock.duckdb.worker.memory import machine_memory
from penstock.spark.run.query_hook import QueryPredicate

if TYPE_CHECKING:
    from penstock.engine.interface import NativeEngine
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan

_MEMORY_DIVISOR = 4
"""DuckDB may use a quarter of the machine's memory; Spark's heap and the page cache need the rest."""


class DuckDb:
    """Runs DuckDB in Spark's Python workers."""

    name = "DuckDB"

    def is_installed(self) -> bool:
        """Whether the driver has the package ``duckdb``, in any release."""
        return find_spec("duckdb") is not None

    def unavailable_reason(self, bridge: Bridge) -> str | None:
        """Return why DuckDB cannot be used in this application, None if no reason has been detected."""
        return unavailable_reason(bridge)

    def local_memory(self) -> int:
        """Return the bytes that DuckDB may use on this machine."""
        return machine_memory() // _MEMORY_DIVISOR

    def rewriter(self, memory: int, excluded: Sequence[str] = (), *, only_expensive: bool = False) -> NativeParts:
        """Return a rewriter for the plans of a vertex; DuckDB may use `memory` bytes in a task before it spills."""
        return NativeParts(memory, excluded, only_expensive)

    def whole_query_predicate(self, bridge: Bridge) -> QueryPredicate:
        """Return the predicate that tests whether DuckDB computes an optimized plan completely, as a single query."""
        return QueryPredicate(bridge, helper(bridge, "NativeQueries"))

    def query(self, plan: LogicalPlan, excluded: Sequence[str] = ()) -> NativePlan | str:
        """Return the parts of an optimized plan that DuckDB can compute, or why it computes none."""
        return native_plan(plan, excluded)


ENGINE: NativeEngine = DuckDb()
