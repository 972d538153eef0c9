"""Rows that tasks take piece by piece, each the next piece whenever it is free (``java/PieceRdd.java``).

The pieces are the subpartitions of a result. The driver deals them out, and keeps who had which: a task that runs again
reads the same ones, so nothing is lost or doubled.

Uses Spark's own messages between driver and executors (``RpcEndpoint``), with the security that the application has.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.spark.expressions import Attributes
from penstock.spark.fragment import rdd_leaf
from penstock.spark.handles import InternalRows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

TICKET = "host string, port int, secret binary"
"""What a task tells its Python worker: where it gets its rows, and by what it is known."""


def pulled_leaf(session: Session, output: Attributes, pieces: InternalRows, tasks: int) -> LogicalPlan:
    """Return the rows of pieces as a leaf, read by a number of tasks."""
    bridge = session._bridge
    rows = bridge.helper("PulledRows", on_executors=True).over(pieces, tasks)
    return rdd_leaf(session, output, InternalRows(bridge, rows))


def ticket_leaf(session: Session, columns: StructType, pieces: InternalRows, tasks: int) -> LogicalPlan:
    """Return a leaf with a row for each task, by which its Python worker gets the rows of pieces as Arrow batches.

    Parameters
    ----------
    columns
        Of the rows. They come as ``DataFrame.mapInArrow`` gives them to its function.
    """
    bridge, conf = session._bridge, session._handle.sessionState().conf()
    types = bridge.find("org.apache.spark.sql.types.DataType")
    form = (types.fromJson(columns.json()), conf.sessionLocalTimeZone(), conf.arrowUseLargeVarTypes())
    most = int(conf.arrowMaxRecordsPerBatch())
    bounds = (most if most > 0 else _ENDLESS, conf.arrowMaxBytesPerBatch())
    rows = bridge.helper("PulledRows", on_executors=True).tickets(pieces, tasks, *form, *bounds)
    schema = bridge.find("org.apache.spark.sql.types.StructType").fromDDL(TICKET)
    output = bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").toAttributes(schema)
    return rdd_leaf(session, Attributes(bridge, output), InternalRows(bridge, rows))


def columns_of(output: Attributes) -> StructType:
    """Return columns of a plan as PySpark has them."""
    from pyspark.sql.types import StructType

    made = output._bridge.companion("org.apache.spark.sql.catalyst.types.DataTypeUtils").fromAttributes(output)
    return StructType.fromJson(json.loads(made.json()))


_ENDLESS = (1 << 31) - 1
"""Rows of a batch where Spark sets no bound."""
