"""Physical operators in which DuckDB computes, and exchanges whose rows are batches of columns.

Uses ``MapInArrowExec``, ``ShuffleExchangeExec`` and ``ColumnsToRows.java``.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import DataFrame

from penstock.duckdb import worker
from penstock.spark.bridge.handles import InternalRows
from penstock.spark.bridge.jvm import EXECUTION, PHYSICAL, items, with_fields
from penstock.spark.plans.expressions import Attributes
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.planning import spark_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.accumulators import Accumulator

    from penstock.duckdb.part_facts import PartFacts, ScatterFacts
    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.worker import NativeStep
    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge

_LOCK = threading.Lock()
_FILE_SCHEMA = "files string"
_INPUT_SCHEMA = "input int, batch binary"
_COLUMNS_SCHEMA = "subpartition int, batch binary"


class RowCounters:
    """Accumulators of the rows that tasks read and return, reported to the JVM after the tasks have ended."""

    def __init__(self, bridge: Bridge, part: Any) -> None:
        with _LOCK:  # PySpark numbers accumulators without a lock
            self.read: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
            self.returned: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
        self.tasks: Any = None
        self._bridge = bridge
        self.part = part

    def report(self) -> None:
        """Report the rows read, for the plan of the tasks, as those of the part's scan, if it has a scan."""
        if self.tasks is not None:
            self._bridge.helper("NativeParts").recordScan(self.tasks, self.part, self.read.value)

    def close(self) -> None:
        """Release the accumulators, which PySpark retains; before 4.2, tasks that run again need them."""
        if self._bridge.version >= (4, 2):
            for counter in (self.read, self.returned):
                _accumulatorRegistry.pop(counter.aid, None)


def native_operator(session: Session, node: Any, part: PartFacts, step: NativeStep, counters: RowCounters) -> Any:
    """Return the operator that computes a part; it returns batches if the step scatters its rows."""
    bridge = session._bridge
    schema = bridge.find("org.apache.spark.sql.types.StructType").fromDDL(
        _INPUT_SCHEMA if part.inputs else _FILE_SCHEMA
    )
    columns = bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(schema)
    if part.inputs:
        tasks = bridge.helper("NativeDecoder", on_executors=True).concatenate(bridge.helper("NativeParts").inputs(node))
    else:
        tasks = bridge.helper("NativeParts").tasks(node)
    read = InternalRows(bridge, tasks)
    rows = rdd_leaf(session, Attributes(bridge, columns), read)
    df = DataFrame(bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, rows), bridge.spark)
    counting = replace(step, rows_read=counters.read, rows_returned=counters.returned)
    plan = map_in_arrow(df, counting, _COLUMNS_SCHEMA if step.scatter else wire_ddl(part.columns))
    physical = spark_plan(session, LogicalPlan(bridge, plan))
    # Like a scan, the leaf declares no partitioning, so Spark adds the exchange that the step ends with.
    unknown = bridge.find(PHYSICAL + "UnknownPartitioning")(read.tasks)
    layout = node.outputPartitioning() if part.inputs else unknown
    child = with_fields(bridge, physical.child(), outputPartitioning=layout)
    child.copyTagsFrom(physical.child())  # adaptive execution reads the logical plan of each node from its tags
    if not part.inputs:
        counters.tasks = child
    if step.scatter is None and not any(column.is_short_decimal for column in part.columns):
        return with_fields(bridge, physical, output=node.output(), child=child)
    operator = with_fields(bridge, physical, child=child)
    operator.copyTagsFrom(physical)
    return operator if step.scatter is not None else bridge.helper("NativeParts").withDecimals(operator, node.output())


def map_in_arrow(df: Any, step: Callable[[Any], Any], output: str) -> Any:
    """Return the analysed plan of ``df.mapInArrow(step)``; `output` is its DDL."""
    with _LOCK:  # the registration applies to all threads
        cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]
        try:
            return df.mapInArrow(step, output)._jdf.queryExecution().analyzed()
        finally:
            cloudpickle.unregister_pickle_by_value(worker)  # type: ignore[no-untyped-call]


def wire_ddl(columns: Sequence[Column]) -> str:
    """Return the DDL of columns in the wire format."""
    return ", ".join(f"{column.name} {column.wire_type}" for column in columns)


def exchange_columns(session: Session, replaced: Any, node: Any, scatter: ScatterFacts, batches: Any) -> Any:
    """Return the operator that reads the rows of an exchange of batches.

    `replaced` is the operator that it replaces: the exchange of the part, or the part itself if Spark adds the exchange
    later.
    """
    bridge = session._bridge
    number = items(batches.output())[0]
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq([number]), scatter.subpartitions)
    origin = bridge.companion(EXECUTION + "exchange.REPARTITION_BY_NUM")
    since_4_3 = [False] if bridge.version >= (4, 3) else []
    exchange = bridge.find(EXECUTION + "exchange.ShuffleExchangeExec")(
        hashing, batches, origin, bridge.none, *since_4_3
    )
    decoder = bridge.helper("NativeDecoder", on_executors=True)
    return bridge.helper("ColumnarExchange").rows(exchange, node.output(), list(scatter.keys), decoder, replaced)
