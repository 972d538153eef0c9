"""Parts of a physical plan that DuckDB computes in Spark's Python workers (``java/NativeParts.java``).

A part is a scan of Parquet files, or rows that were exchanged as columns, with the filters, projections, joins and
aggregates right above. It becomes one ``MapInArrowExec`` over rows that tell each task which ranges of files it reads,
those of Spark's own scan, or that are the batches of columns themselves.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import first_line
from penstock.native.errors import NOT_NATIVE, NotNativeError
from penstock.native.files import FileRange, Files
from penstock.native.sample import sampled
from penstock.native.scatter import Scatter, numbers_of
from penstock.native.worker import NativeStep
from penstock.spark import answers
from penstock.spark.handles import PhysicalPlan
from penstock.spark.jvm import children, class_name
from penstock.spark.key_rows import key_rows
from penstock.spark.native_builds import broadcast_build
from penstock.spark.native_failures import failed_before, missing, remember, why_failed
from penstock.spark.native_operators import RowsCounted, as_columns, native_operator
from penstock.spark.native_part_facts import PartFacts

if TYPE_CHECKING:
    from pyspark.core.broadcast import Broadcast

    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.native_part_facts import ScatterFacts

log = logging.getLogger("penstock.native")

_SAMPLED = 3
"""Row groups that are looked at: one may lie where all rows are alike, as tables are often sorted by time."""


@dataclass(slots=True)
class NativeParts:
    """Lets DuckDB compute parts of the plans of one vertex.

    Parameters
    ----------
    memory
        Bytes that DuckDB may use in a task before it spills.

    Attributes
    ----------
    parts
        What was found in the plan that was made last.
    failure
        Why Spark has computed all parts after all, None if it has not.
    """

    memory: int
    parts: list[PartFacts] = field(default_factory=list)
    failure: str | None = None
    _counted: list[RowsCounted] = field(default_factory=list, repr=False)
    _nodes: list[Any] = field(default_factory=list, repr=False)
    _failed: list[Any] = field(default_factory=list, repr=False)

    @property
    def is_used(self) -> bool:
        """Whether DuckDB computes a part."""
        return self.failure is None and any(part.declined is None for part in self.parts)

    def rewritten(self, session: Session, plan: PhysicalPlan) -> PhysicalPlan:
        """Return a physical plan, before exchanges are added, with parts that DuckDB computes."""
        if self.failure is not None:
            return plan
        try:
            return PhysicalPlan(session._bridge, self._rewritten(session, plan._handle))
        except Exception as error:  # Spark's plan is there
            log.exception("no part can be computed by DuckDB")
            self.failure = first_line(error)
            return plan

    def _rewritten(self, session: Session, plan: Any) -> Any:
        bridge = session._bridge
        answer = bridge.helper("NativeParts").find(plan)
        self.parts = [PartFacts.of(one) for one in answers.facts(answer)]
        self.failure = missing(bridge)
        if self.failure is not None:
            return plan
        self._counted.clear()
        self._nodes.clear()
        old, made = [], []
        for place, part in enumerate(self.parts):
            if part.declined is not None:
                continue
            node, exchange = answer.handle(2 * place), answer.handle(2 * place + 1)
            step = self._step(session, node, part)
            if isinstance(step, str):
                self.parts[place] = replace(part, declined=step)
                continue
            self._counted.append(RowsCounted(bridge, node))
            self._nodes.append(node)
            operator = native_operator(session, node, part, step, self._counted[-1])
            if part.scatter is None or step.scatter is None:
                old.append(node)
                made.append(operator)
            else:
                old.append(exchange)
                made.append(as_columns(session, exchange, node, part.scatter, operator))
        return bridge.helper("NativeParts").replaced(plan, old, made) if old else plan

    def _step(self, session: Session, node: Any, part: PartFacts) -> NativeStep | str:
        """Return what computes a part, or why Spark shall."""
        try:
            return self._of_inputs(session, node, part) if part.inputs else self._of_files(session, node, part)
        except NotNativeError as error:
            return str(error).removeprefix(NOT_NATIVE)
        except Exception as error:  # other parts may be computed
            log.warning("a part cannot be computed by DuckDB", exc_info=True)
            return first_line(error)

    def _of_inputs(self, session: Session, node: Any, part: PartFacts) -> NativeStep | str:
        why = part.why_memory(self.memory) or part.why_small(1, part.task_rows)
        if why is not None:
            return why
        step = NativeStep(part.sql, part.columns, self.memory, inputs=part.inputs, tables=_tables(session, node, part))
        if part.scatter is None or not part.leaves_as_columns(part.task_rows):
            return step
        return replace(step, scatter=_scatter(part.scatter))

    def _of_files(self, session: Session, node: Any, part: PartFacts) -> NativeStep | str:
        failure = failed_before(session._bridge, node)
        if failure is not None:
            return failure
        facts = json.loads(session._bridge.helper("NativeParts").sample(node, _SAMPLED))
        sample = sampled([FileRange(**one) for one in facts["files"]], facts["task_bytes"])
        why = part.why_small(facts["tasks"], sample.task)
        if why is not None:
            return why
        files, tables = Files(part.read, part.calendar, part.folders), _tables(session, node, part)
        step = NativeStep(part.sql, part.columns, self.memory, files, tables=tables)
        if part.aggregates and part.scatter is None:
            return step
        share = sample.share(step)
        for table in tables.values():
            table.__dict__.pop("_value", None)  # the driver need not keep what it has read for the sample
        if part.scatter is not None and part.leaves_as_columns(share * sample.task):
            return replace(step, scatter=_scatter(part.scatter))
        return part.why_many(share) or step

    def tell(self, bridge: Bridge) -> None:
        """Tell the plan that has run how many rows DuckDB has read.

        If Spark has computed what DuckDB could not, the failure was DuckDB's, and is remembered: where a function of
        the query's own fails, Spark fails too.
        """
        for rows in self._counted:
            rows.tell()
        for node in self._failed:
            remember(bridge, node, str(self.failure))

    def close(self) -> None:
        """Let go of what has counted rows."""
        for rows in self._counted:
            rows.close()

    @property
    def rows_given(self) -> int | None:
        """How many rows DuckDB has given to the one exchange of the plan that has run.

        None if there are several, or if none were counted: counts of Python workers can be lost, and no rows at all
        would be more than an estimate.
        """
        return self._counted[0].given.value or None if len(self._counted) == 1 else None

    def gives_up(self, bridge: Bridge, error: Exception) -> bool:
        """Whether an error comes from a worker of a part, perhaps; from now on Spark computes all parts then.

        Where it comes from the query's own function, Spark will raise it again.
        """
        why = why_failed(bridge, error) if self.is_used else None
        if why is None:
            return False
        self.failure = why
        log.warning("Spark computes what DuckDB could not: %s", self.failure)
        self._failed = list(self._nodes)
        return True

    def refuses(self, above: PhysicalPlan) -> bool:
        """Whether the part of a plan that has not run yet has a part of DuckDB: nothing could take its place later."""
        if not self.is_used or not _has_part(above._handle):
            return False
        self.failure = "the step ends without an exchange"
        return True


def _tables(session: Session, node: Any, part: PartFacts) -> dict[str, Broadcast[bytes]]:
    """Return the tables that a part joins."""
    bridge = session._bridge
    found = {f"build_{number}": broadcast_build(bridge, node, number) for number in range(part.builds)}
    for number in part.keys:
        keys = key_rows(number)
        if keys is None:
            raise NotNativeError("the keys that its rows must be among are gone")
        found[f"keys_{number}"] = keys.rows(session)
    return found


def _scatter(facts: ScatterFacts) -> Scatter:
    return Scatter(facts.keys, numbers_of(facts.subpartitions))


def _has_part(plan: Any) -> bool:
    if class_name(plan) in {"MapInArrowExec", "PythonMapInArrowExec"} and NativeStep.__name__ in str(plan.func()):
        return True
    return class_name(plan) != "ShuffleQueryStageExec" and any(map(_has_part, children(plan)))
