"""Lets Spark pass rows to Python functions without measuring batches, if no batch can reach the limit of bytes.

The limit applies to everything that a thread runs: to every function of a step, and to earlier steps that run again
because their files are lost. So the batches of a step are measured unless the maximum width of its rows is known, and
all of its inputs were written by such steps.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstock.spark.plans.python_batches import BatchLimits, batch_limits, widest_row, without_measuring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.graph import StreamEdge
    from penstock.spark.bridge.handles import InternalRows, Session
    from penstock.spark.plans.logical_plan import LogicalPlan

_ROUNDING = 128
"""Rows' worth of bytes that Arrow may add to a batch by rounding up its buffer sizes."""


class PythonBatches:
    """The batches of a job; they are always measured unless Spark runs all operators of a step (`spark_only`)."""

    def __init__(self, *, spark_only: bool = True) -> None:
        self._spark_only = spark_only
        self._nodes: set[int] = set()
        self._rows: set[int] = set()

    def add_leaf(self, edge: StreamEdge, rows: InternalRows) -> None:
        """Note the rows that an edge reads, if the steps that wrote them need no limit."""
        if edge.source_id in self._nodes:
            self._rows.add(rows.id)

    @contextmanager
    def limiting(self, session: Session, plan: LogicalPlan, node_id: int | None = None) -> Iterator[None]:
        """Measure batches only if the plan that this thread runs in the block needs it.

        `session`, which plans it, has the user's own limits before and after the block. `plan` is everything that runs,
        down to finished results. Consumers refer to the result by `node_id`, if not None.
        """
        limits = batch_limits(session)
        widest = widest_row(plan, frozenset(self._rows)) if self._spark_only else None
        needs_limit = widest is None or reaches_limit(widest, limits)
        with without_measuring(session, limits) if widest and not needs_limit else nullcontext():
            yield
        if node_id is not None and not needs_limit:
            self._nodes.add(node_id)


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
    return limits.rows <= 0 or width * (limits.rows + _ROUNDING) >= limits.bytes
