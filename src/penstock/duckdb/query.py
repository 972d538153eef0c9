"""Queries that DuckDB computes, completely or mostly, in a single task (``NativeQueries.java``).

A part of an optimized plan becomes a DuckDB query if Spark would exchange rows for it. Spark computes the operators
above the parts, which are usually cheap: a sort, a limit, a function that DuckDB lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from penstock.duckdb import process
from penstock.duckdb.expressions.registry import helper
from penstock.duckdb.failures import fail_fast, failure_reason, previous_failure_reason, record_failure
from penstock.duckdb.operators import map_in_arrow, wire_ddl
from penstock.duckdb.part_facts import typed_columns
from penstock.duckdb.worker.engine import NOT_NATIVE, NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.query import NamedResult, QueryFunction, Table
from penstock.duckdb.worker.server import StoredRows
from penstock.errors import first_line
from penstock.sizing.coverage import check_rows
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import InternalRows, Statistics
from penstock.spark.bridge.settings import clone_with, is_true
from penstock.spark.plans.expressions import Expression
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.run import exchange, layouts, verification

log = logging.getLogger("penstock.native")

_SUBPARTITIONS = 8
"""Number of subpartitions of a large result, so that the Spark operators above it run in several tasks."""
_SINGLE_TASK_BYTES = 16 << 20
"""Up to this size, a single task reads a result, so the operators above need no exchange. It is less than Spark's
advisory size of 64 MiB, because results are compressed better than Spark's rows."""
_SENT_BYTES = 4 << 20
"""Up to this size in the JVM, the driver gets a result directly: an exchange takes as long as the transfer."""
_SENT_BYTES_TO_TASK = 512 << 10
"""The same for a result that Spark processes in a task, as Spark warns of tasks with more than 1000 KiB."""
_NO_EXCHANGE = "Spark exchanges no rows for it"
_SLOW_OPERATORS = ("Python", "Arrow", "Pandas", "Generate")
"""Substrings of names of Spark operators that may take long per row, so that their input needs several tasks."""


@dataclass(frozen=True)
class NativePlan:
    """An optimized plan and the parts of it that DuckDB can compute; see also `penstock.engine.interface.EngineQuery`.

    `has_late_values` says whether Spark computes, above an aggregate, values that may fail for rows that a filter or
    join further above drops. Spark must not compute these values before that operator. `_normalized` is the normalized
    plan (``NativeNormalization.java``), and the parts replace its subplans `_subplans`. `_final_order` is the clause
    that sorts the rows of the only part if the plan is a sort of them, or of some of their columns; otherwise None.
    """

    plan: LogicalPlan
    parts: tuple[QueryFunction, ...]
    rest_reasons: tuple[str, ...]
    rest_size_in_bytes: int
    rest_may_fail: bool
    has_late_values: bool
    _normalized: Any
    _subplans: tuple[Any, ...]
    _final_order: str | None

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
        """Compute the parts; see `penstock.engine.interface.EngineQuery.rows`.

        `is_checked` says whether to verify the number of rows of each part, and the subpartitions of these rows.
        """
        bridge, leaves = self.plan._bridge, []
        for part, subplan in zip(self.parts, self._subplans, strict=True):
            try:
                leaf = self._compute(part, LogicalPlan(bridge, subplan), memory, threads, is_checked=is_checked)
            except Exception as error:
                reason = failure_reason(bridge, error)
                if reason is None:
                    raise
                log.warning("DuckDB failed, so Spark computes the rows: %s", reason)
                record_failure(bridge, subplan, reason)
                return reason
            leaves.append(leaf._handle)
        if self._is_root and (self._final_order is None or leaf.kind == "LocalRelation"):
            return leaf
        plan = bridge.helper("NativeQueries").withParts(self._normalized, list(self._subplans), leaves)
        # Spark would compute common subexpressions early, before a filter or join removes rows.
        settings = {"spark.sql.subexpressionElimination.enabled": "false"}
        return exchange.run_in_plain_spark(
            LogicalPlan(bridge, plan), clone_with(bridge.session, settings) if self.has_late_values else None
        )

    def _compute(
        self, part: QueryFunction, subplan: LogicalPlan, memory: int, threads: int, *, is_checked: bool
    ) -> LogicalPlan:
        """Compute a part; return a leaf that reads its rows and replaces `subplan`."""
        bridge = subplan._bridge
        function = replace(part, memory=memory, threads=threads)
        if self._has_slow_rest or not process.is_available(bridge):
            return self._exchanged_leaf(function, part, subplan, is_checked=is_checked)
        if self._final_order is not None:
            function = replace(function, sql=f"SELECT * FROM ({part.sql}){self._final_order}")  # noqa: S608 - quoted
        limit = _SENT_BYTES if self._is_root else _SENT_BYTES_TO_TASK
        with process.computed_rows(bridge, function, limit) as rows:
            if isinstance(rows, StoredRows):
                return self._exchanged_leaf(rows, part, subplan, is_checked=is_checked)
        batches, columns = list(rows.batches), subplan.output
        output = LogicalPlan(bridge, self._normalized).output if self._is_root else columns
        decoded = bridge.helper("NativeDecoder", on_executors=True).relation(batches, columns, output)
        relation = LogicalPlan(bridge, decoded)
        if is_checked:
            check_rows(_subject(part), rows.count, int(decoded.data().length()))
        if self._is_root:
            return relation
        # As a single task, so that the operators above need no exchange.
        context = bridge.spark.sparkContext._jsc.sc()
        task = bridge.helper("NativeDecoder", on_executors=True).rows(context, batches, columns)
        statistics = Statistics(bridge, (subplan if self.has_late_values else relation)._handle.stats())
        return rdd_leaf(bridge.session, columns, InternalRows(bridge, task), statistics=statistics)

    def _exchanged_leaf(
        self, function: QueryFunction | StoredRows, part: QueryFunction, subplan: LogicalPlan, *, is_checked: bool
    ) -> LogicalPlan:
        """Run a function in a task of Spark, and exchange its rows; return a leaf that reads them."""
        bridge, session = subplan._bridge, subplan._bridge.session
        if not is_true(bridge.spark.conf.get("spark.sql.adaptive.enabled")):
            session = clone_with(session, {"spark.sql.adaptive.enabled": "true"})  # else `write` runs no stage
        encoded_rows = map_in_arrow(bridge.spark.range(0, 1, 1, 1), function, wire_ddl(part.columns))
        output = LogicalPlan(bridge, bridge.helper("NativeQueries").withOutput(encoded_rows, subplan.output))
        key = bridge.helper("NativeQueries").hashableColumn(subplan.output)
        exchanged = output.rebalanced(1) if key is None else output.hashed_by([Expression(bridge, key)], _SUBPARTITIONS)
        with fail_fast(bridge):
            result = exchange.write(session, exchanged)
        is_small = (result.size_in_bytes or 0) <= (0 if self._has_slow_rest else _SINGLE_TASK_BYTES)
        physical = exchange.read_ranges(result, [(0, result.subpartitions)] if is_small else None)
        spark_layout, rows = layouts.layout(physical, subplan.output), physical.rows()
        if is_checked:
            if spark_layout is not None:
                rows = verification.check_layout(rows, spark_layout, subplan.output, _subject(part))
            check_rows(_subject(part), result.exact_rows, verification.count_rows(rows))
        # Late values may fail if Spark computes all of them, as for a broadcast join side. With Spark's own estimate
        # instead of the (smaller) measured size, no side is broadcast that is not broadcast without DuckDB.
        statistics = Statistics(bridge, subplan._handle.stats()) if self.has_late_values else result.statistics
        layout = layouts.as_shareable(spark_layout)
        return rdd_leaf(session, subplan.output, rows, layout=layout, statistics=statistics)

    @cached_property
    def _is_root(self) -> bool:
        """Whether Spark computes nothing above the only part, except for the final order."""
        return self._final_order is not None or (
            len(self._subplans) == 1 and bool(self._normalized.fastEquals(self._subplans[0]))
        )

    @property
    def _has_slow_rest(self) -> bool:
        """Whether Spark computes operators above the parts that may take long per row."""
        return any(word in reason for reason in self.rest_reasons for word in _SLOW_OPERATORS)


def _subject(part: QueryFunction) -> str:
    return f"the result of DuckDB for {', '.join(sorted(table.name for table in part.tables))}"


def native_plan(plan: LogicalPlan, excluded: Sequence[str] = ()) -> NativePlan | str:
    """Return the parts of an optimized plan that DuckDB can compute, or why it computes none.

    `excluded` are the names of expressions that Spark must compute, in lower case.
    """
    bridge = plan._bridge
    try:
        has_process = process.is_available(bridge)
        answer = helper(bridge, "NativeQueries").find(plan._handle, bridge.session, list(excluded), has_process)
        facts = answers.facts(answer)
        parts = tuple(map(_part, facts["parts"]))
        reasons = tuple(dict.fromkeys(facts["declined_reasons"]))
        if not parts:
            return f"it has {reasons[0]}" if reasons else _NO_EXCHANGE
        for part in parts:
            for table in part.tables:
                table.rows_query()  # raises if a file cannot be read
    except NotNativeError as error:
        return str(error).removeprefix(NOT_NATIVE)
    except Exception as error:  # Spark can compute the query
        log.warning("the search for parts that DuckDB can compute failed; Spark computes the query", exc_info=True)
        return f"the search for parts that it can compute failed: {first_line(error)}"
    subplans = tuple(answer.handle(1 + number) for number in range(len(parts)))
    failure_reasons = (previous_failure_reason(bridge, subplan) for subplan in subplans)
    failures = [reason for reason in failure_reasons if reason is not None]
    if failures:
        return failures[0]
    rest_facts = facts["rest_size_in_bytes"], facts["rest_may_fail"], facts["has_late_values"]
    final_order = facts["final_order"] if has_process else None
    if final_order is not None:
        reasons = ()
    process.prepare(bridge)
    native = NativePlan(plan, parts, reasons, *rest_facts, answer.handle(0), subplans, final_order)
    return native if native._is_root or all(part.may_be_large for part in parts) else _NO_EXCHANGE


def _part(facts: dict[str, Any]) -> QueryFunction:
    results = tuple(NamedResult(*fields) for fields in facts["results"])
    tables, columns = tuple(map(_table, facts["tables"])), typed_columns(facts["columns"])
    return QueryFunction(facts["sql"], results, columns, tables, may_be_large=not facts["is_lookup"])


def _table(facts: dict[str, Any]) -> Table:
    read_columns, partition_columns = (typed_columns(facts[kind]) for kind in ("read_columns", "partition_columns"))
    files = Files(read_columns, facts["rebase_mode"], partition_columns, facts["compared_columns"])
    return Table(facts["name"], files, tuple(FileRange(**fields) for fields in facts["files"]))
