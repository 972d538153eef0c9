"""Operators of physical plans in which DuckDB computes, and exchanges whose rows are batches of columns.

Uses ``MapInArrowExec``, ``ShuffleExchangeExec`` and, of this package, ``java/NativeRows.java``.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import DataFrame

from penstock import native
from penstock.spark.expressions import Attributes
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import InternalRows
from penstock.spark.jvm import EXECUTION, PHYSICAL, items, with_fields
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.planning import spark_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.accumulators import Accumulator

    from penstock.native.columns import Column
    from penstock.native.worker import NativeStep
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.native_part_facts import PartFacts, ScatterFacts

_ONE_AT_A_TIME = threading.Lock()
_OF_FILES = "files string"
_OF_INPUTS = "input int, batch binary"
_OF_COLUMNS = "place int, batch binary"


class RowsCounted:
    """The rows that tasks read and give, which the JVM can only be told after they have ended.

    Parameters
    ----------
    part
        The part of the plan that they compute.
    """

    def __init__(self, bridge: Bridge, part: Any) -> None:
        with _ONE_AT_A_TIME:  # PySpark counts them up without a lock
            self.read: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
            self.given: Accumulator[int] = bridge.spark.sparkContext.accumulator(0)
        self.tasks: Any = None
        self._bridge = bridge
        self._part = part

    def tell(self) -> None:
        """Let the plan of the tasks stand for the scan of the part, if there is one."""
        if self.tasks is not None:
            self._bridge.helper("NativeParts").tell(self.tasks, self._part, self.read.value)

    def close(self) -> None:
        """Let go of the counters, which PySpark keeps; before 4.2, a task that runs again fails without them."""
        if self._bridge.version >= (4, 2):
            for counter in (self.read, self.given):
                _accumulatorRegistry.pop(counter.aid, None)


def native_operator(session: Session, node: Any, part: PartFacts, step: NativeStep, counted: RowsCounted) -> Any:
    """Return the operator that computes a part; it gives batches if the step deals its rows out."""
    bridge = session._bridge
    schema = bridge.find("org.apache.spark.sql.types.StructType").fromDDL(_OF_INPUTS if part.inputs else _OF_FILES)
    columns = bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(schema)
    if part.inputs:
        tasks = bridge.helper("NativeDecoder", on_executors=True).together(bridge.helper("NativeParts").inputs(node))
    else:
        tasks = bridge.helper("NativeParts").tasks(node)
    read = InternalRows(bridge, tasks)
    rows = rdd_leaf(session, Attributes(bridge, columns), read)
    made = bridge.companion("org.apache.spark.sql.classic.Dataset").ofRows(session, rows)
    counting = replace(step, rows_read=counted.read, rows_given=counted.given)
    plan = mapped(DataFrame(made, bridge.spark), counting, _OF_COLUMNS if step.scatter else sent_columns(part.columns))
    physical = spark_plan(session, LogicalPlan(bridge, plan))
    # A scan claims nothing of its rows, so Spark puts the exchange behind it that the step ends with.
    unknown = bridge.find(PHYSICAL + "UnknownPartitioning")(read.tasks)
    layout = node.outputPartitioning() if part.inputs else unknown
    told = with_fields(bridge, physical.child(), outputPartitioning=layout)
    told.copyTagsFrom(physical.child())  # adaptive execution wants to know the logical plan of each
    if not part.inputs:
        counted.tasks = told
    if step.scatter is None and not any(one.is_short_decimal for one in part.columns):
        return with_fields(bridge, physical, output=node.output(), child=told)
    computed = with_fields(bridge, physical, child=told)
    computed.copyTagsFrom(physical)
    return computed if step.scatter is not None else bridge.helper("NativeParts").withDecimals(computed, node.output())


def mapped(df: Any, step: Callable[[Any], Any], given: str) -> Any:
    """Return the analysed plan of what a step makes of a DataFrame.

    Parameters
    ----------
    df
        The DataFrame.
    step
        The step: it is sent to the workers with the modules of its room, which need not have this package.
    given
        The columns that it gives.
    """
    with _ONE_AT_A_TIME:  # what is registered holds for all threads
        cloudpickle.register_pickle_by_value(native)  # type: ignore[no-untyped-call]
        try:
            return df.mapInArrow(step, given)._jdf.queryExecution().analyzed()
        finally:
            cloudpickle.unregister_pickle_by_value(native)  # type: ignore[no-untyped-call]


def sent_columns(columns: Sequence[Column]) -> str:
    """Return columns as they travel, as Spark's SQL spells them."""
    return ", ".join(f"{one.name} {one.sent}" for one in columns)


def as_columns(session: Session, instead: Any, node: Any, scatter: ScatterFacts, batches: Any) -> Any:
    """Return the rows of an exchange of batches, which takes the place of a part, or of its exchange.

    Parameters
    ----------
    instead
        What it takes the place of: the exchange of the part, or the part itself where Spark has yet to add one.
    node
        The part.
    scatter
        How its rows are exchanged.
    batches
        The operator that gives them.
    """
    bridge = session._bridge
    number = items(batches.output())[0]
    hashing = bridge.find(PHYSICAL + "HashPartitioning")(bridge.seq([number]), scatter.subpartitions)
    origin = bridge.companion(EXECUTION + "exchange.REPARTITION_BY_NUM")
    since_4_3 = [False] if bridge.version >= (4, 3) else []
    made = bridge.find(EXECUTION + "exchange.ShuffleExchangeExec")(hashing, batches, origin, bridge.none, *since_4_3)
    decoder = bridge.helper("NativeDecoder", on_executors=True)
    return bridge.helper("NativeExchange").rows(made, node.output(), list(scatter.keys), decoder, instead)
