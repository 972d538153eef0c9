"""The batches of rows that Spark gives to Python functions (``BatchedPythonArrowInput``, Spark 4.0 to 4.3).

Spark measures a batch before each further row: that takes much of the time of a narrow row. It does not if the limit
is the largest number. Tasks read the limit from the local properties of the thread that has started them, and so do
all functions of their stages, and of earlier stages whose files are lost and that are run again for them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config import parse_size
from penstock.spark.settings import change_settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OWN_LIMIT, _OWN_ROWS = "64m", "10000"
"""Spark's own values."""
NO_LIMIT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What bounds a batch.

    Parameters
    ----------
    rows
        The most rows, none if it is not positive.
    bytes
        The bytes from which on no further row is added.
    """

    rows: int
    bytes: int


def batch_limits(session: Session) -> BatchLimits:
    """Return what bounds the batches of a session."""
    found = read_settings(session, "spark.sql.execution.arrow.")
    return BatchLimits(int(found.get(_ROWS, _OWN_ROWS)), parse_size(found.get(LIMIT, _OWN_LIMIT)))


@contextmanager
def unmeasured(session: Session, limits: BatchLimits) -> Iterator[None]:
    """Let Spark measure no batch in what this thread runs in the block, with a session whose limits are given."""
    _set_limit(session, NO_LIMIT)
    try:
        yield
    finally:
        _set_limit(session, limits.bytes)


def _set_limit(session: Session, most_bytes: int) -> None:
    change_settings(session, {LIMIT: str(most_bytes)})
    session._bridge.spark.sparkContext._jsc.sc().setLocalProperty(LIMIT, str(most_bytes))


def widest_row(plan: LogicalPlan, known_rows: Collection[int] = ()) -> int | None:
    """Return the bytes of the widest row that a Python function of a plan is given, at most.

    Parameters
    ----------
    plan
        An optimised plan.
    known_rows
        The numbers of those RDDs among its leaves of which the same is known.

    Returns
    -------
    int or None
        0 if no function is called; None if a row has no bound, or if not all that the plan runs is known.
    """
    found = int(plan._bridge.helper("ArrowRows").widest(plan, " ".join(map(str, known_rows))))
    return None if found < 0 else found
