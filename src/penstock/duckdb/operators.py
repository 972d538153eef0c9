"""Physical operators that run DuckDB, and exchanges whose rows are batches of columns.

A *part* is a subplan that DuckDB computes. Uses ``MapInArrowExec``, ``ShuffleExchangeExec``, ``ColumnsToRows.java``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
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
    from pyspark.accumulators import Accumulator

    from penstock.duckdb.part_facts import PartFacts, ScatterFacts
    from penstock.duckdb.worker.columns import Column
    from penstock.duckdb.worker.worker import PartFunction
    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge

_LOCK = threading.Lock()
_FILE_SCHEMA = "files string"  # the JSON list of the file ranges that a task reads
_INPUT_SCHEMA = "input int, batch binary"  # the number of an input, and an Arrow batch of its rows
_COLUMNS_SCHEMA = "routing_number int, batch binary"  # see `penstock.duckdb.worker.scatter`


class RowCounters:
    """Counts the rows that the tasks of a part read from files and return; `root` is the root of the part's plan."""

    def __init__(self, bridge: Bridge, root: Any) -> None:
        with _LOCK:  # PySpark numbers accumulators without a lock
            self.read: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
            self.returned: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
        self.leaf: Any = None  # replaces the part's scan; `native_operator` sets it
        self._bridge = bridge
        self.root = root

    def report(self) -> None:
        """Record the rows read as metrics of the leaf that replaces the part's scan; do nothing without a scan."""
        if self.leaf is not None:
            self._bridge.helper("NativeParts").recordScan(self.leaf, self.root, self.read.value)

    def close(self) -> None:
        """Release the accumulators. Before PySpark 4.2, do nothing: a later update by a retried task would fail."""
        if self._bridge.version >= (4, 2):
            for counter in (self.read, self.returned):
                _accumulatorRegistry.pop(counter.aid, None)


def native_operator(session: Session, root: Any, part: PartFacts, function: PartFunction, counters: RowCounters) -> Any:
    """Return the operator that computes a part; its rows are batches of columns if `function` scatters them."""
    bridge = session._bridge
    schema = bridge.find("org.apache.spark.sql.types.StructType").fromDDL(
        _INPUT_SCHEMA if part.inputs else _FILE_SCHEMA
    )
    columns = bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(schema)
    if part.inputs:
        rdd = bridge.helper("NativeDecoder", on_executors=True).concatenate(bridge.helper("NativeParts").inputs(root))
    else:
        rdd = bridge.helper("NativeParts").tasks(root)
    input_rows = InternalRows(bridge, rdd)
    leaf = rdd_leaf(session, Attributes(bridge, columns), input_rows)
    df = DataFrame(bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, leaf), bridge.spark)
    counting_function = replace(function, rows_read=counters.read, rows_returned=counters.returned)
    plan = map_in_arrow(df, counting_function, _COLUMNS_SCHEMA if function.scatter else wire_ddl(part.columns))
    physical = spark_plan(session, LogicalPlan(bridge, plan))
    if part.calls:
        tagged = physical  # the tags refer to the logical plan, which adaptive execution reads
        physical = with_fields(bridge, tagged, func=bridge.helper("NativeParts").withVariables(tagged.func(), root))
        physical.copyTagsFrom(tagged)
    # Like a scan, a leaf that reads files declares no partitioning, so Spark adds the exchange that ends the stage.
    unknown = bridge.find(PHYSICAL + "UnknownPartitioning")(input_rows.tasks)
    layout = root.outputPartitioning() if part.inputs else unknown
    child = with_fields(bridge, physical.child(), outputPartitioning=layout)
    child.copyTagsFrom(physical.child())  # adaptive execution reads the logical plan of each node from its tags
    if not part.inputs:
        counters.leaf = child
    if function.scatter is None and not any(column.is_short_decimal for column in part.columns):
        return with_fields(bridge, physical, output=root.output(), child=child)
    operator = with_fields(bridge, physical, child=child)
    operator.copyTagsFrom(physical)
    if function.scatter is not None:
        return operator
    return bridge.helper("NativeParts").withDecimals(operator, root.output())  # short decimals arrive as integers


def map_in_arrow(df: Any, function: Callable[[Any], Any], schema: str) -> Any:
    """Return the analyzed plan of ``df.mapInArrow(function, schema)``; `schema` is in DDL."""
    with _LOCK:  # cloudpickle registers modules for all threads
        cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]
        try:
            return df.mapInArrow(function, schema)._jdf.queryExecution().analyzed()
        finally:
            cloudpickle.unregister_pickle_by_value(worker)  # type: ignore[no-untyped-call]


def wire_ddl(columns: Sequence[Column]) -> str:
    """Return the schema of columns in the wire format, as DDL."""
    return ", ".join(f"{column.name} {column.wire_type}" for column in columns)


def exchange_columns(session: Session, replaced: Any, root: Any, scatter: ScatterFacts, batches: Any) -> Any:
    """Return the operator that exchanges a part's column batches, which `batches` computes, and reads their rows.

    `replaced` is the exchange above the part, or the root of the part if Spark would add the exchange later.
    """
    bridge = session._bridge
    routing_number = items(batches.output())[0]
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq([routing_number]), scatter.subpartitions)
    origin = bridge.companion(EXECUTION + "exchange.REPARTITION_BY_NUM")  # AQE retains the number of subpartitions
    pipelined = [False] if bridge.version >= (4, 3) else []  # a parameter since Spark 4.3
    exchange = bridge.find(EXECUTION + "exchange.ShuffleExchangeExec")(
        hashing, batches, origin, bridge.none, *pipelined
    )
    decoder = bridge.helper("NativeDecoder", on_executors=True)
    return bridge.helper("ColumnarExchange").rows(exchange, root.output(), list(scatter.keys), decoder, replaced)
