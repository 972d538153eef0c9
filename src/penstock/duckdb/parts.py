"""Parts of a physical plan that DuckDB computes in Spark's Python workers (``NativeParts.java``).

A part is a scan of Parquet files, or of rows that were exchanged as columns, together with the filters, projections,
joins and aggregates directly above. It becomes a ``MapInArrowExec``. Its input rows are either the file ranges of each
task, the same as those of Spark's own scan, or serialized batches of columns.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.duckdb.failures import (
    fail_fast,
    failure_reason,
    previous_failure_reason,
    record_failure,
    unavailable_reason,
)
from penstock.duckdb.operators import RowCounters, exchange_columns, native_operator
from penstock.duckdb.part_facts import PartFacts
from penstock.duckdb.worker.errors import NOT_NATIVE, NotNativeError
from penstock.duckdb.worker.files import FileRange, Files
from penstock.duckdb.worker.sample import sample_row_groups
from penstock.duckdb.worker.scatter import Scatter, routing_numbers
from penstock.duckdb.worker.worker import NativeStep
from penstock.errors import first_line
from penstock.spark.bridge import answers
from penstock.spark.bridge.handles import PhysicalPlan
from penstock.spark.bridge.jvm import children, class_name
from penstock.spark.run.key_rows import broadcast_table, key_rows

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pyspark.core.broadcast import Broadcast

    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.native")

_SAMPLED_ROW_GROUPS = 3
"""Several, as tables are often sorted by time, so all rows of a row group may be similar."""


@dataclass(slots=True)
class NativeParts:
    """Replaces parts of the physical plans of a vertex by DuckDB operators.

    `memory` is the number of bytes that DuckDB may use in a task before it spills.

    Attributes
    ----------
    fragments
        The parts of the latest plan.
    failure
        Why Spark computes all parts, None if DuckDB may be used.
    """

    memory: int
    fragments: list[PartFacts] = field(default_factory=list)
    failure: str | None = None
    _counters: list[RowCounters] = field(default_factory=list, repr=False)
    _failed: list[Any] = field(default_factory=list, repr=False)

    @property
    def is_used(self) -> bool:
        """Whether DuckDB computes at least one part."""
        return self.failure is None and any(part.declined is None for part in self.fragments)

    def rewrite(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Replace the parts that DuckDB computes in a physical plan that has no exchanges yet."""
        if self.failure is not None:
            return plan
        try:
            return PhysicalPlan(session._bridge, self._rewrite(session, plan._handle))
        except Exception as error:  # Spark can run its own plan
            log.exception("no part can be computed by DuckDB")
            self.failure = first_line(error)
            return plan

    def _rewrite(self, session: Session, plan: Any) -> Any:
        bridge = session._bridge
        answer = bridge.helper("NativeParts").find(plan)
        self.fragments = [PartFacts.of(facts) for facts in answers.facts(answer)]
        self.failure = unavailable_reason(bridge)
        if self.failure is not None:
            return plan
        self._counters.clear()
        replaced, replacements = [], []
        for index, part in enumerate(self.fragments):
            if part.declined is not None:
                continue
            node, exchange = answer.handle(2 * index), answer.handle(2 * index + 1)
            step = self._step(session, node, part)
            if isinstance(step, str):
                self.fragments[index] = replace(part, declined=step)
                continue
            self._counters.append(RowCounters(bridge, node))
            operator = native_operator(session, node, part, step, self._counters[-1])
            if part.scatter is None or step.scatter is None:
                replaced.append(node)
                replacements.append(operator)
            else:
                replaced.append(exchange)
                replacements.append(exchange_columns(session, exchange, node, part.scatter, operator))
        return bridge.helper("NativeParts").replaced(plan, replaced, replacements) if replaced else plan

    def _step(self, session: Session, node: Any, part: PartFacts) -> NativeStep | str:
        """Return the computation of a part, or why Spark must compute it."""
        try:
            return self._input_step(session, node, part) if part.inputs else self._file_step(session, node, part)
        except NotNativeError as error:
            return str(error).removeprefix(NOT_NATIVE)
        except Exception as error:  # other parts may still be computed
            log.warning("a part cannot be computed by DuckDB", exc_info=True)
            return first_line(error)

    def _input_step(self, session: Session, node: Any, part: PartFacts) -> NativeStep | str:
        reason = part.memory_reason(self.memory) or part.too_small_reason(1, part.task_rows)
        if reason is not None:
            return reason
        step = NativeStep(part.sql, part.columns, self.memory, inputs=part.inputs, tables=_tables(session, node, part))
        return replace(step, scatter=_scatter(part, part.task_rows))

    def _file_step(self, session: Session, node: Any, part: PartFacts) -> NativeStep | str:
        previous_failure = previous_failure_reason(session._bridge, node)
        if previous_failure is not None:
            return previous_failure
        facts = json.loads(session._bridge.helper("NativeParts").sample(node, _SAMPLED_ROW_GROUPS))
        sample = sample_row_groups([FileRange(**fields) for fields in facts["files"]], facts["task_bytes"])
        reason = part.too_small_reason(facts["tasks"], sample.task)
        if reason is not None:
            return reason
        files, tables = Files(part.read, part.calendar, part.folders), _tables(session, node, part)
        step = NativeStep(part.sql, part.columns, self.memory, files, tables=tables)
        if part.aggregates and part.scatter is None:
            return step
        output_ratio = sample.output_ratio(step)
        for table in tables.values():
            table.__dict__.pop("_value", None)  # release what the sample has loaded in the driver
        scatter = _scatter(part, output_ratio * sample.task)
        return replace(step, scatter=scatter) if scatter else part.too_many_rows_reason(output_ratio) or step

    def report_rows(self, bridge: Bridge) -> None:
        """Report the rows that DuckDB has read to the plan that has run, and record its failures.

        A failure is recorded only here, after Spark has computed the same parts: if a user's function was the cause,
        Spark fails, too.
        """
        for counters in self._counters:
            counters.report()
        for node in self._failed:
            record_failure(bridge, node, str(self.failure))

    def close(self) -> None:
        """Release the row counters."""
        for counters in self._counters:
            counters.close()

    @property
    def rows_returned(self) -> int | None:
        """The number of rows that DuckDB has returned to the exchange of the plan that has run.

        None if several parts or none were computed, and if the count is 0: counts of Python workers can be lost, so 0
        is not reliable.
        """
        return self._counters[0].returned.value or None if len(self._counters) == 1 else None

    def fail_fast(self, bridge: Bridge) -> AbstractContextManager[None]:
        """End the jobs of the block at the first DuckDB failure."""
        return fail_fast(bridge)

    def handle_failure(self, bridge: Bridge, error: Exception) -> bool:
        """Let Spark compute all parts from now on if an error may come from a worker of a part; return whether it may.

        If a user's function has raised the error, Spark will raise it again.
        """
        reason = failure_reason(bridge, error) if self.is_used else None
        if reason is None:
            return False
        self.failure = reason
        log.warning("Spark computes what DuckDB could not: %s", self.failure)
        self._failed = [counters.part for counters in self._counters]
        return True

    def declines_last_stage(self, above: PhysicalPlan) -> bool:
        """Let Spark compute all parts if the last stage has a part: it could not be replaced after a failure."""
        if not self.is_used or not _has_part(above._handle):
            return False
        self.failure = "the step ends without an exchange"
        return True


def _tables(session: Session, node: Any, part: PartFacts) -> dict[str, Broadcast[bytes]]:
    bridge = session._bridge
    tables = {f"build_{number}": _broadcast_build(bridge, node, number) for number in range(part.builds)}
    for number in part.keys:
        keys = key_rows(number)
        if keys is None:
            raise NotNativeError("the keys of the semi-join have been released")
        tables[f"keys_{number}"] = keys.rows(session)
    return tables


def _broadcast_build(bridge: Bridge, leaf: Any, number: int) -> Broadcast[bytes]:
    """Broadcast a join side of a leaf (``HashedRelation``, ``ArrowConverters.toBatchWithSchemaIterator``)."""
    return broadcast_table(bridge, lambda path: bridge.helper("NativeParts").writeBuild(leaf, number, path))


def _scatter(part: PartFacts, rows: float) -> Scatter | None:
    """Return how the output leaves as columns if each task returns this many rows, None if it leaves as rows."""
    if part.scatter is None or not part.leaves_as_columns(rows):
        return None
    return Scatter(part.scatter.keys, routing_numbers(part.scatter.subpartitions))


def _has_part(plan: Any) -> bool:
    if class_name(plan) in {"MapInArrowExec", "PythonMapInArrowExec"} and NativeStep.__name__ in str(plan.func()):
        return True
    return class_name(plan) != "ShuffleQueryStageExec" and any(map(_has_part, children(plan)))
