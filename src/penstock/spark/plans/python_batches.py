"""The size limits of the batches that Spark passes to Python functions (``BatchedPythonArrowInput``, Spark 4.0 to 4.3).

Spark measures the size of a batch before it adds a row, which is slow for rows with few bytes. Spark does not measure
if the limit is the maximum. Tasks read the limit from the local properties of the thread that started their job. The
limit applies to all functions of the job's stages, and of earlier stages that run again because files were lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config import parse_size
from penstock.spark.bridge.settings import change_settings, read_settings

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.logical_plan import LogicalPlan

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NO_LIMIT = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The size limits of a batch: rows (unlimited if not positive), and the bytes after which no row is added."""

    rows: int
    bytes: int


def batch_limits(session: Session) -> BatchLimits:
    """Return the size limits of the batches of a session."""
    settings = read_settings(session, "spark.sql.execution.arrow.")
    return BatchLimits(int(settings.get(_ROWS, "10000")), parse_size(settings.get(LIMIT, "64m")))  # Spark's defaults


@contextmanager
def without_measuring(session: Session, limits: BatchLimits) -> Iterator[None]:
    """Turn off the measuring of batches for this thread's jobs in the block, then restore the session's `limits`."""
    _set_limit(session, NO_LIMIT)
    try:
        yield
    finally:
        _set_limit(session, limits.bytes)


def _set_limit(session: Session, max_bytes: int) -> None:
    change_settings(session, {LIMIT: str(max_bytes)})
    session._bridge.spark.sparkContext._jsc.sc().setLocalProperty(LIMIT, str(max_bytes))


def widest_row(plan: LogicalPlan, bounded_rdds: Collection[int] = ()) -> int | None:
    """Return the maximum bytes of a row that a Python function of a plan receives; 0 if the plan has no such function.

    None if a row may have any size, or an operator is not supported. `bounded_rdds` are the ids of the RDD leaves
    whose rows have a maximum size.
    """
    size = int(plan._bridge.helper("ArrowRows").maxRowBytes(plan, " ".join(map(str, bounded_rdds))))
    return None if size < 0 else size
