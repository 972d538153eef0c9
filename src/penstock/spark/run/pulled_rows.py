"""Rows that tasks pull in chunks: each task requests the next chunk as soon as it is free (``ChunkRdd.java``).

The chunks are the subpartitions of an adaptive exchange. The driver assigns them and records the assignment: a retried
task reads the same chunks, so no row is lost or duplicated.

Uses Spark's own RPC between driver and executors (``RpcEndpoint``), with the application's security settings.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.spark.bridge.handles import InternalRows, Session
from penstock.spark.plans.expressions import Attributes
from penstock.spark.plans.fragment import rdd_leaf
from penstock.spark.plans.python_batches import NO_LIMIT

if TYPE_CHECKING:
    from penstock.spark.plans.logical_plan import LogicalPlan

TICKET = "host string, port int, secret binary"
"""The schema of the row that a task passes to its Python worker: the address of its rows, and an access secret."""


def pulled_leaf(session: Session, output: Attributes, chunks: InternalRows, tasks: int) -> LogicalPlan:
    """Return a leaf with the rows of chunks (the partitions of an RDD); `tasks` is the number of pulling tasks."""
    bridge = session._bridge
    rows = bridge.helper("PulledRows", on_executors=True).over(chunks, tasks)
    return rdd_leaf(session, output, InternalRows(bridge, rows))


def ticket_leaf(session: Session, columns: StructType, chunks: InternalRows, tasks: int) -> LogicalPlan:
    """Return a leaf with a row (`TICKET`) per task; its Python worker uses the row to fetch chunks as Arrow batches."""
    bridge, conf = session._bridge, session._handle.sessionState().conf()
    types = bridge.find("org.apache.spark.sql.types.DataType")
    arrow_options = (types.fromJson(columns.json()), conf.sessionLocalTimeZone(), conf.arrowUseLargeVarTypes())
    max_rows = int(conf.arrowMaxRecordsPerBatch())
    limits = (max_rows if max_rows > 0 else NO_LIMIT, conf.arrowMaxBytesPerBatch())
    rows = bridge.helper("PulledRows", on_executors=True).tickets(chunks, tasks, *arrow_options, *limits)
    schema = bridge.find("org.apache.spark.sql.types.StructType").fromDDL(TICKET)
    output = bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(schema)
    return rdd_leaf(session, Attributes(bridge, output), InternalRows(bridge, rows))


def schema_of(output: Attributes) -> StructType:
    """Return the columns of a plan as a PySpark schema."""
    schema = output._bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").fromAttributes(output)
    return StructType.fromJson(json.loads(schema.json()))
