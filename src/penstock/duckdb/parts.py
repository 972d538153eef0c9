"""Parts of a physical plan that DuckDB computes in Spark's Python workers (``NativeParts.java``).

A part is a scan of Parquet files, or of rows that were exchanged as columns, together with the filters, projections,
joins and aggregates directly above it. The part becomes a ``MapInArrowExec``. Its input rows are either the file ranges
of each task, which are the same as in Spark's own scan, or serialized batches of columns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.duckdb.expressions.registry import helper
from penstock.duckdb.failures import (
    fail_fast,
    failure_reason,
    previous_failure_reason,
    record_failure,
    unavailable_reason,
)
from penstock.duckdb.operators import RowCounters, exchange_columns, native_operator
from penstock.duckdb.part_facts import PartFacts
from penstock.duckdb.worker.engine import NOT_NATIVE, NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.functions import PYSPARK
from penstock.duckdb.worker.sample import sample_row_groups
from penstock.duckdb.worker.scatter import Scatter, routing_numbers
from penstock.duckdb.worker.worker import PartFunction
from penstock.errors import first_line
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import PhysicalPlan
from penstock.spark.bridge.jvm import children, class_name
from penstock.spark.run.key_rows import broadcast_table, key_rows

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast

    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.native")

_SAMPLED_ROW_GROUPS = 3
"""Number of row groups to sample: several, as the rows of a row group may be similar in a table sorted by time."""

_NOT_EXPENSIVE = "it neither calls Python functions nor parses JSON of files, and execution.native is not true"


@dataclass(slots=True)
class NativeParts:
    """Replaces parts of the physical plans of a vertex by DuckDB operators.

    `memory` is the number of bytes that DuckDB may use in a task before it spills. `excluded` are the names of
    expressions that Spark must compute, in lower case. `only_expensive` says whether Spark computes parts that are not
    expensive (`PartFacts.is_expensive`). `fragments` are the parts of the latest plan. `failure` says why Spark
    computes all parts; None if DuckDB may be used.
    """

    memory: int
    excluded: Sequence[str] = ()
    only_expensive: bool = False
    fragments: list[PartFacts] = field(default_factory=list)
    failure: str | None = None
    _counters: list[RowCounters] = field(default_factory=list, repr=False)
    _failed_roots: list[Any] = field(default_factory=list, repr=False)

    @property
    def is_used(self) -> bool:
        """Whether DuckDB computes at least one part."""
        return self.failure is None and any(part.declined_reason is None for part in self.fragments)

    def rewrite(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Return a plan with DuckDB operators for parts of `plan`, to which Spark has not added exchanges yet."""
        if self.failure is not None:
            return plan
        try:
            return PhysicalPlan(session._bridge, self._rewrite(session, plan._handle))
        except Exception as error:  # Spark can run its own plan
            log.exception("the search for parts that DuckDB can compute failed; Spark computes all")
            self.failure = first_line(error)
            return plan

    def _rewrite(self, session: Session, plan: Any) -> Any:
        bridge = session._bridge
        answer = helper(bridge, "NativeParts").find(plan, list(self.excluded), self.only_expensive)
        self.fragments = [PartFacts.of(facts) for facts in answers.facts(answer)]
        if self.only_expensive and not any(part.is_expensive and not part.inputs for part in self.fragments):
            self.fragments = []
            return plan
        self.failure = unavailable_reason(bridge)
        if self.failure is not None:
            return plan
        self._counters.clear()
        replaced, replacements = [], []
        for index, part in enumerate(self.fragments):
            if part.declined_reason is not None:
                continue
            if self.only_expensive and (not part.is_expensive or part.inputs):
                self.fragments[index] = replace(part, declined_reason=_NOT_EXPENSIVE)
                continue
            root, root_or_exchange = answer.handle(2 * index), answer.handle(2 * index + 1)  # of this part
            function = self._function(session, root, part)
            if isinstance(function, str):
                self.fragments[index] = replace(part, declined_reason=function)
                continue
            self._counters.append(RowCounters(bridge, root))
            operator = native_operator(session, root, part, function, self._counters[-1])
            if part.scatter is None or function.scatter is None:
                replaced.append(root)
                replacements.append(operator)
            else:
                replaced.append(root_or_exchange)
                replacements.append(exchange_columns(session, root_or_exchange, root, part.scatter, operator))
        return bridge.helper("NativeParts").withParts(plan, replaced, replacements) if replaced else plan

    def _function(self, session: Session, root: Any, part: PartFacts) -> PartFunction | str:
        """Return the function that computes a part in the workers, or why Spark must compute the part."""
        if part.calls and session._bridge.version < PYSPARK:
            return f"its Python functions need PySpark {'.'.join(map(str, PYSPARK))}"
        try:
            return (self._input_function if part.inputs else self._file_function)(session, root, part)
        except NotNativeError as error:
            return str(error).removeprefix(NOT_NATIVE)
        except Exception as error:  # other parts may still be computed
            log.warning("a part cannot be prepared for DuckDB; Spark computes it", exc_info=True)
            return first_line(error)

    def _input_function(self, session: Session, root: Any, part: PartFacts) -> PartFunction | str:
        reason = part.memory_reason(self.memory) or part.too_small_reason(1, part.estimated_task_rows)
        if reason is not None:
            return reason
        tables, scatter = _tables(session, root, part), _scatter(part, part.estimated_task_rows)
        return PartFunction(
            part.sql, part.columns, self.memory, inputs=part.inputs, tables=tables, scatter=scatter, calls=part.calls
        )

    def _file_function(self, session: Session, root: Any, part: PartFacts) -> PartFunction | str:
        previous_failure = previous_failure_reason(session._bridge, root)
        if previous_failure is not None:
            return previous_failure
        facts = json.loads(session._bridge.helper("NativeParts").sample(root, _SAMPLED_ROW_GROUPS))
        sample = sample_row_groups([FileRange(**fields) for fields in facts["files"]], facts["task_bytes"])
        reason = part.too_small_reason(facts["tasks"], sample.task_rows)
        if reason is not None:
            return reason
        files = Files(part.read_columns, part.rebase_mode, part.partition_columns, part.compared_columns)
        tables = _tables(session, root, part)
        function = PartFunction(part.sql, part.columns, self.memory, files, tables=tables, calls=part.calls)
        if part.calls:  # the user's functions must not run in the driver, and all rows leave Python on Spark, too
            return function if part.aggregates else replace(function, scatter=_scatter(part, sample.task_rows))
        if part.aggregates and part.scatter is None:  # no decision depends on the number of output rows
            return function
        is_slow = part.parses_json and self.only_expensive  # parsing the sample takes seconds
        output_ratio = 1.0 if is_slow else sample.output_ratio(function)
        for table in tables.values():
            table.__dict__.pop("_value", None)  # release the copy that the sample has loaded into the driver
        scatter = _scatter(part, output_ratio * sample.task_rows)  # without it, Spark exchanges rows, which is slower
        return replace(function, scatter=scatter) if scatter else part.too_many_rows_reason(output_ratio) or function

    def report_rows(self, bridge: Bridge) -> None:
        """Add the rows that DuckDB has read to the metrics of the executed plan, and record failures.

        If DuckDB failed, this is called only if Spark has then computed the rows. If a user's function was the cause,
        Spark fails, too, so no failure of DuckDB is recorded.
        """
        for counters in self._counters:
            counters.report()
        for root in self._failed_roots:
            record_failure(bridge, root, str(self.failure))

    def close(self) -> None:
        """Release the row counters."""
        for counters in self._counters:
            counters.close()

    @property
    def rows_returned(self) -> int | None:
        """The number of rows that DuckDB has returned to the exchange of the executed plan.

        None if DuckDB has computed no part or several, or if the count is 0, as counts of Python workers can be lost.
        """
        return self._counters[0].returned.value or None if len(self._counters) == 1 else None

    def fail_fast(self, bridge: Bridge) -> AbstractContextManager[None]:
        """End the jobs of the block at the first DuckDB failure."""
        return fail_fast(bridge)

    def handle_failure(self, bridge: Bridge, error: Exception) -> bool:
        """If an error may come from a DuckDB worker, let Spark compute all parts; return whether it may.

        If a user's function has raised the error, Spark will raise it again.
        """
        reason = failure_reason(bridge, error) if self.is_used else None
        if reason is None:
            return False
        self.failure = reason
        log.warning("DuckDB failed, so Spark computes the rows: %s", self.failure)
        self._failed_roots = [counters.root for counters in self._counters]
        return True

    def disable_for_last_stage(self, final_plan: PhysicalPlan) -> bool:
        """Let Spark compute all parts if the last stage, which has no fallback, has a part; return whether it has."""
        if not self.is_used or not _has_part(final_plan._handle):
            return False
        self.failure = "the step ends without an exchange"
        return True


def _tables(session: Session, root: Any, part: PartFacts) -> dict[str, Broadcast[bytes]]:
    """Broadcast the build sides and key sets that a part joins; return them by their names in its query."""
    bridge = session._bridge
    tables = {f"build_{number}": _broadcast_build(bridge, root, number) for number in range(part.build_count)}
    for number in part.key_set_numbers:
        keys = key_rows(number)
        if keys is None:
            raise NotNativeError("the keys of the semi-join have been released")
        tables[f"keys_{number}"] = keys.rows(session)
    return tables


def _broadcast_build(bridge: Bridge, root: Any, number: int) -> Broadcast[bytes]:
    """Broadcast the rows of a part's build side as an Arrow stream (``RelationRows.java``)."""
    return broadcast_table(bridge, lambda path: bridge.helper("NativeParts").writeBuild(root, number, path))


def _scatter(part: PartFacts, task_rows: float) -> Scatter | None:
    """Return the scatter of a part's output if each task returns `task_rows`, None if Spark exchanges the rows."""
    if part.scatter is None or not part.is_exchanged_as_columns(task_rows):
        return None
    return Scatter(part.scatter.keys, routing_numbers(part.scatter.subpartitions))


def _has_part(plan: Any) -> bool:
    """Whether DuckDB computes a part of the last stage of a plan; Spark shows the part's function by its class."""
    maps_batches = class_name(plan) in {"MapInArrowExec", "PythonMapInArrowExec"}
    if maps_batches and str(plan.func()).startswith(f"{PartFunction.__name__}("):
        return True
    return class_name(plan) != "ShuffleQueryStageExec" and any(map(_has_part, children(plan)))
