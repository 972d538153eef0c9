"""Lets Spark give rows to Python functions without measuring batches, where no batch can reach the limit of bytes.

A limit holds for all that a thread runs: for every function of a step, and for earlier steps whose files are lost and
that are run again. So a step's batches are measured unless all that it runs is known, and all that it reads was made
by such steps.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstock.spark.python_batches import batch_limits, unmeasured, widest_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.graph import StreamEdge
    from penstock.spark.handles import InternalRows, Session
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.python_batches import BatchLimits

_ROUNDING = 128
"""Rows' worth of bytes that Arrow may add to a batch, by rounding the sizes of its buffers up."""


class PythonBatches:
    """The batches of one job.

    Parameters
    ----------
    all_is_seen
        Whether Spark runs a step's operators and no others; if not, batches are always measured.
    """

    def __init__(self, *, all_is_seen: bool = True) -> None:
        self._all_is_seen = all_is_seen
        self._nodes: set[int] = set()
        self._rows: set[int] = set()

    def add_leaf(self, edge: StreamEdge, rows: InternalRows) -> None:
        """Remember the rows that an edge reads, if the steps that made them need no limit."""
        if edge.source_id in self._nodes:
            self._rows.add(rows.id)

    @contextmanager
    def suited(self, session: Session, plan: LogicalPlan, node_id: int | None = None) -> Iterator[None]:
        """Let batches be measured only if the plan that this thread runs in the block needs it.

        Parameters
        ----------
        session
            The session that plans it. It has the user's own limits, before and afterwards.
        plan
            All that is run, down to results that lie ready.
        node_id
            The node by which its consumers know the result, if it has any.
        """
        limits = batch_limits(session)
        widest = widest_row(plan, frozenset(self._rows)) if self._all_is_seen else None
        needs_limit = widest is None or reaches_limit(widest, limits)
        with unmeasured(session, limits) if widest and not needs_limit else nullcontext():
            yield
        if node_id is not None and not needs_limit:
            self._nodes.add(node_id)


def reaches_limit(width: int, limits: BatchLimits) -> bool:
    """Whether a batch may reach its limit of bytes before it has all of its rows.

    Parameters
    ----------
    width
        The most bytes of a row; 0 if there are no batches.
    limits
        What bounds a batch.

    Examples
    --------
    >>> from penstock.spark.python_batches import BatchLimits
    >>> reaches_limit(18, BatchLimits(rows=10_000, bytes=64 << 20))
    False
    >>> reaches_limit(18, BatchLimits(rows=0, bytes=64 << 20))
    True
    """
    if width == 0:
        return False
    return limits.rows <= 0 or width * (limits.rows + _ROUNDING) >= limits.bytes
