"""Queries that DuckDB computes, completely or mostly, in a single task (``NativeQueries.java``).

Each part of an optimised plan for which Spark would exchange rows becomes a DuckDB query. Spark computes the rest
above them, which is cheap: a sort, a limit, a function that DuckDB lacks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from penstock.duckdb.failures import fail_fast, failure_reason, previous_failure_reason, record_failure
from penstock.duckdb.operators import map_in_arrow, wire_ddl
from penstock.duckdb.part_facts import typed_columns
from penstock.duckdb.worker.errors import NOT_NATIVE, NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.query import NamedResult, NativeQueryStep, Table
from penstock.errors import first_line
from penstock.sizing.coverage import check_rows
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import Statistics
from penstock.spark.bridge.settings import clone_with, is_true
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.run import exchange, layouts, verification

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
    parts: tuple[NativeQueryStep, ...]
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
    def fragment_count(self) -> int:
        """The number of DuckDB queries."""
        return len(self.parts)

    @property
    def tables(self) -> list[str]:
        """The names of the tables that the parts read."""
        return sorted({table.name for part in self.parts for table in part.tables})

    def rows(self, memory: int, threads: int, *, is_checked: bool = False) -> LogicalPlan | str:
        """Compute the parts; return a leaf with the rows of the whole query, whose last stage has not run.

        If DuckDB fails, return the reason. `memory` is the number of bytes that DuckDB may use before it spills.
        `is_checked` says whether to verify the number of exchanged rows of each part and their subpartitions. Raises
        `VerificationError` if a verification fails.
        """
        bridge, leaves = self.plan._bridge, []
        for part, subplan in zip(self.parts, self._subplans, strict=True):
            try:
                leaf = self._compute(part, LogicalPlan(bridge, subplan), memory, threads, is_checked=is_checked)
            except Exception as error:
                reason = failure_reason(bridge, error)
                if reason is None:
                    raise
                log.warning("Spark computes what DuckDB could not: %s", reason)
                record_failure(bridge, subplan, reason)
                return reason
            leaves.append(leaf._handle)
        plan = bridge.helper("NativeQueries").withParts(self._searched, list(self._subplans), leaves)
        # Common subexpressions are not computed early, before a filter or join removes rows.
        early = {"spark.sql.subexpressionElimination.enabled": "false"}
        return exchange.spark_rows(
            LogicalPlan(bridge, plan), clone_with(bridge.session, early) if self.has_late_values else None
        )

    def _compute(
        self, part: NativeQueryStep, subplan: LogicalPlan, memory: int, threads: int, *, is_checked: bool
    ) -> LogicalPlan:
        """Compute a part in a Spark job; return a leaf that reads its materialized rows and replaces `subplan`."""
        bridge, session = subplan._bridge, subplan._bridge.session
        if not is_true(bridge.spark.conf.get("spark.sql.adaptive.enabled")):
            session = clone_with(session, {"spark.sql.adaptive.enabled": "true"})
        step = replace(part, memory=memory, threads=threads)
        source = map_in_arrow(bridge.spark.range(0, 1, 1, 1), step, wire_ddl(part.columns))
        output = LogicalPlan(bridge, bridge.helper("NativeQueries").withOutput(source, subplan.output))
        key = bridge.helper("NativeQueries").hashableColumn(subplan.output)
        exchanged = output.rebalanced(1) if key is None else output.hashed_by([Expression(bridge, key)], _SUBPARTITIONS)
        with fail_fast(bridge):
            result = exchange.write(session, exchanged)
        is_slow = any(word in reason for reason in self.rest_reasons for word in _SLOW_OPERATORS)
        is_small = (result.size_in_bytes or 0) <= (0 if is_slow else _SINGLE_TASK_BYTES)
        physical = exchange.read_ranges(result, [(0, result.subpartitions)] if is_small else None)
        spark_layout, rows = layouts.layout(physical, subplan.output), physical.rows()
        if is_checked:
            subject = f"the result of DuckDB for {', '.join(sorted(table.name for table in part.tables))}"
            if spark_layout is not None:
                rows = verification.check_layout(rows, spark_layout, subplan.output, subject)
            check_rows(subject, result.exact_rows, verification.count_rows(rows))
        # All values of a broadcast join side are computed. The estimate makes Spark broadcast the same side as without
        # DuckDB.
        statistics = Statistics(bridge, subplan._handle.stats()) if self.has_late_values else result.statistics
        layout = layouts.shareable(spark_layout)
        return rdd_leaf(session, subplan.output, rows, layout=layout, statistics=statistics)


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


def _part(facts: dict[str, Any]) -> NativeQueryStep:
    results = tuple(NamedResult(*fields) for fields in facts["results"])
    return NativeQueryStep(facts["sql"], results, typed_columns(facts["columns"]), tuple(map(_table, facts["tables"])))


def _table(facts: dict[str, Any]) -> Table:
    files = Files(typed_columns(facts["read"]), facts["calendar"], typed_columns(facts["folders"]))
    return Table(facts["name"], files, tuple(FileRange(**fields) for fields in facts["files"]))
