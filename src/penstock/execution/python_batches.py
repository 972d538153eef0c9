"""Turns off Spark's measuring of the bytes of batches for Python functions if no batch can reach the limit of bytes.

The limit is a setting of a thread. So it applies to all functions of a step, and to earlier steps that run again
because their files are lost. Measuring is therefore only turned off if the rows of a step have a maximum size, and all
of its inputs were written by steps that needed no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstock.spark.plans.python_batches import BatchLimits, batch_limits, widest_row, without_measuring

if TYPE_CHECKING:
    from penstock.graph import StreamEdge
    from penstock.spark.bridge.handles import InternalRows, Session
    from penstock.spark.plans.logical_plan import LogicalPlan

_ROUNDING_ROWS = 128
"""Arrow rounds up buffer sizes, so a batch may take as many bytes as a batch with this many additional rows."""


class PythonBatches:
    """Decides for each plan whether Spark measures its batches; always if a native engine runs (not `spark_only`)."""

    def __init__(self, *, spark_only: bool = True) -> None:
        self._spark_only = spark_only
        self._bounded_nodes: set[int] = set()
        self._bounded_rows: set[int] = set()

    def add_leaf(self, edge: StreamEdge, rows: InternalRows) -> None:
        """Register that the rows of an edge have a maximum size, if the step that wrote them needed no limit."""
        if edge.source_id in self._bounded_nodes:
            self._bounded_rows.add(rows.id)

    @contextmanager
    def limit_if_needed(self, session: Session, plan: LogicalPlan, node_id: int | None = None) -> Iterator[None]:
        """Turn off the measuring of batches in the block, unless the plan that runs in the block needs the limit.

        `session` plans the query, and has the user's limits before and after the block. `plan` is everything that runs,
        down to finished results. `node_id` is the node whose consumers read the result; None for a sink.
        """
        limits = batch_limits(session)
        widest = widest_row(plan, frozenset(self._bounded_rows)) if self._spark_only else None
        needs_limit = widest is None or reaches_limit(widest, limits)
        with without_measuring(session, limits) if widest and not needs_limit else nullcontext():
            yield
        if node_id is not None and not needs_limit:
            self._bounded_nodes.add(node_id)


def reaches_limit(width: int, limits: BatchLimits) -> bool:
    """Whether a batch may reach its limit of bytes before its limit of rows.

    `width` is the maximum bytes of a row; 0 if there are no batches.

    >>> from penstock.spark.plans.python_batches import BatchLimits
    >>> reaches_limit(18, BatchLimits(rows=10_000, bytes=64 << 20))
    False
    >>> reaches_limit(18, BatchLimits(rows=0, bytes=64 << 20))
    True
    """
    if width == 0:
        return False
    return limits.rows <= 0 or width * (limits.rows + _ROUNDING_ROWS) >= limits.bytes
