"""Queries that DuckDB computes, completely or mostly, in a single task (``java/NativeQueries.java``).

Each part of an optimised plan for which Spark would exchange rows becomes a DuckDB query. Spark computes the rest
above them, which is cheap: a sort, a limit, a function that DuckDB lacks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import first_line
from penstock.native.columns import Column
from penstock.native.errors import NOT_NATIVE, NotNativeError
from penstock.native.files import FileRange, Files
from penstock.native.query import NamedResult, NativeQueryStep, Table
from penstock.sizing.coverage import check_rows
from penstock.spark import answers, exchange, layouts, verification
from penstock.spark.expressions import Expression
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import Statistics
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.native_failures import fail_fast, failure_reason, previous_failure_reason, record_failure
from penstock.spark.native_operators import map_in_arrow, wire_ddl
from penstock.spark.settings import change_settings, is_true
from penstock.spark.spark_rows import spark_rows

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.native")

_SUBPARTITIONS = 8
"""Number of subpartitions of a large result, so that the Spark operators above it run in several tasks."""
_SINGLE_TASK_BYTES = 16 << 20
"""Size of a result that a single task reads, without an exchange above it. Spark's advisory size of 64 MiB applies to
rows that are compressed less."""
_SLOW_OPERATORS = ("Python", "Arrow", "Pandas", "Generate")
"""Parts of names of Spark operators that may take long per row, so that their input needs several tasks."""


@dataclass(frozen=True, slots=True)
class NativePlan:
    """An optimised plan and the parts of it that DuckDB can compute.

    Parameters
    ----------
    rest_reasons
        Why Spark must compute the operators above the parts.
    rest_in_bytes
        Spark's estimated size of the tables and other leaves that no part reads.
    rest_may_fail
        Whether the operators that Spark computes may raise an error.
    has_late_values
        Whether Spark computes values of a part's rows, which may fail, only above a filter or join that removes rows.
    _searched, _subplans
        The plan that was searched, and the subplans of it that the parts replace.
    """

    plan: LogicalPlan
    parts: tuple[NativeQueryPart, ...]
    rest_reasons: tuple[str, ...]
    rest_in_bytes: int
    rest_may_fail: bool
    has_late_values: bool
    _searched: Any
    _subplans: tuple[Any, ...]

    @property
    def size_in_bytes(self) -> int:
        """The size of the files that the parts read."""
        return sum(table.size_in_bytes for part in self.parts for table in part.tables)

    @property
    def tables(self) -> list[str]:
        """The names of the tables that the parts read."""
        return sorted({table.name for part in self.parts for table in part.tables})

    def rows(self, memory: int, threads: int, *, is_checked: bool = False) -> LogicalPlan | str:
        """Compute the parts; return a leaf with the rows of the whole query, whose last stage has not run.

        If DuckDB fails, return the reason.

        Parameters
        ----------
        memory
            Bytes that DuckDB may use before it spills.
        is_checked
            Whether to verify the number of exchanged rows of each part and their subpartitions.

        Raises
        ------
        VerificationError
            If a verification fails.
        """
        bridge = self.plan._bridge
        subplans = [LogicalPlan(bridge, subplan) for subplan in self._subplans]
        is_slow = any(word in reason for reason in self.rest_reasons for word in _SLOW_OPERATORS)
        single_task_bytes = 0 if is_slow else _SINGLE_TASK_BYTES
        leaves = []
        for part, subplan in zip(self.parts, subplans, strict=True):
            # All values of a broadcast join side are computed. The estimate makes Spark broadcast the same side as
            # without DuckDB.
            statistics = Statistics(bridge, subplan._handle.stats()) if self.has_late_values else None
            try:
                leaf = _compute_part(
                    bridge, part, subplan, memory, threads, single_task_bytes, statistics, is_checked=is_checked
                )
            except Exception as error:
                reason = failure_reason(bridge, error)
                if reason is None:
                    raise
                log.warning("Spark computes what DuckDB could not: %s", reason)
                record_failure(bridge, subplan, reason)
                return reason
            leaves.append(leaf)
        plan = bridge.helper("NativeQueries").withParts(self._searched, list(self._subplans), leaves)
        session = _with_late_values(bridge) if self.has_late_values else None
        return spark_rows(LogicalPlan(bridge, plan), session)


@dataclass(frozen=True, slots=True)
class NativeQueryPart:
    """A DuckDB query: its SQL, its output columns, and the tables that it reads."""

    sql: str
    results: tuple[NamedResult, ...]
    columns: tuple[Column, ...]
    tables: tuple[Table, ...]


def exchange_count(plan: LogicalPlan) -> float:
    """Return about how many exchanges Spark would plan; a broadcast counts as a fraction of an exchange."""
    bridge = plan._bridge
    return float(bridge.helper("ExchangeCount").of(plan._handle, bridge.session))


def native_plan(plan: LogicalPlan) -> NativePlan | str:
    """Return the parts of an optimised plan that DuckDB can compute, or why there are none."""
    bridge = plan._bridge
    try:
        answer = bridge.helper("NativeQueries").find(plan._handle, bridge.session)
        facts = answers.facts(answer)
        parts = tuple(map(_part, facts["parts"]))
        reasons = tuple(dict.fromkeys(facts["why"]))
        if not parts:
            return f"it has {reasons[0]}" if reasons else "Spark exchanges no rows for it"
        for part in parts:
            for table in part.tables:
                table.check()
    except NotNativeError as error:
        return str(error).removeprefix(NOT_NATIVE)
    except Exception as error:  # Spark can compute the query
        log.warning("the search for parts that DuckDB can compute failed; Spark computes the query", exc_info=True)
        return f"looking for what it can compute failed: {first_line(error)}"
    subplans = tuple(answer.handle(1 + number) for number in range(len(parts)))
    previous = (previous_failure_reason(bridge, subplan) for subplan in subplans)
    failures = [reason for reason in previous if reason is not None]
    if failures:
        return failures[0]
    rest = facts["rest"], facts["rest_may_fail"], facts["has_late_values"]
    return NativePlan(plan, parts, reasons, *rest, answer.handle(0), subplans)


def _compute_part(
    bridge: Bridge,
    part: NativeQueryPart,
    subplan: LogicalPlan,
    memory: int,
    threads: int,
    single_task_bytes: int,
    statistics: Statistics | None,
    *,
    is_checked: bool,
) -> Any:
    """Compute a part in a Spark job; return a leaf that reads its materialized rows.

    Parameters
    ----------
    bridge, part, subplan, memory, threads, is_checked
        As in `NativePlan.rows`; the leaf replaces `subplan`.
    single_task_bytes
        Maximum size of a result that a single task reads.
    statistics
        The statistics of the leaf for Spark's planner; None for the measured statistics.
    """
    session = _with_adaptive_execution(bridge)
    step = NativeQueryStep(part.sql, part.results, part.columns, part.tables, memory, threads)
    source = map_in_arrow(bridge.spark.range(0, 1, 1, 1), step, wire_ddl(part.columns))
    rows = bridge.helper("NativeQueries").withOutput(source, subplan.output)
    output = LogicalPlan(bridge, rows)
    keys = [bridge.helper("NativeQueries").hashableColumn(subplan.output)]
    hashed = output.hashed_by([Expression(bridge, key) for key in keys if key is not None], _SUBPARTITIONS)
    with fail_fast(bridge):
        result = exchange.write(session, output.rebalanced(1) if None in keys else hashed)
    is_small = (result.size_in_bytes or 0) <= single_task_bytes
    physical = exchange.read_ranges(result, [(0, result.subpartitions)] if is_small else None)
    spark_layout, rows = layouts.layout(physical, subplan.output), physical.rows()
    if is_checked:
        subject = f"the result of DuckDB for {', '.join(sorted(table.name for table in part.tables))}"
        rows = rows if spark_layout is None else verification.check_layout(rows, spark_layout, subplan.output, subject)
        check_rows(subject, result.exact_rows, verification.count_rows(rows))
    layout = layouts.shareable(spark_layout)
    leaf = rdd_leaf(session, subplan.output, rows, layout=layout, statistics=statistics or result.statistics)
    return leaf._handle


def _with_late_values(bridge: Bridge) -> Session:
    """Return a session that does not compute common subexpressions early, before a filter or join removes rows."""
    session = bridge.session.clone()
    change_settings(session, {"spark.sql.subexpressionElimination.enabled": "false"})
    return session


def _with_adaptive_execution(bridge: Bridge) -> Session:
    """Return the user's session if it has adaptive execution, else a clone that has."""
    if is_true(bridge.spark.conf.get("spark.sql.adaptive.enabled")):
        return bridge.session
    session = bridge.session.clone()
    change_settings(session, {"spark.sql.adaptive.enabled": "true"})
    return session


def _part(facts: dict[str, Any]) -> NativeQueryPart:
    results = tuple(NamedResult(*fields) for fields in facts["results"])
    return NativeQueryPart(facts["sql"], results, _columns(facts["columns"]), tuple(map(_table, facts["tables"])))


def _columns(facts: list[dict[str, str]]) -> tuple[Column, ...]:
    return tuple(Column(**fields) for fields in facts)


def _table(facts: dict[str, Any]) -> Table:
    ranges = tuple(FileRange(**fields) for fields in facts["files"])
    return Table(facts["name"], Files(_columns(facts["read"]), facts["calendar"], _columns(facts["folders"])), ranges)
