"""The batches of rows that Spark gives to Python functions (``BatchedPythonArrowInput``, Spark 4.0 to 4.3).

Spark measures a batch before each further row: that takes most of the time of a narrow row. It does not if the limit
is the largest number (`NO_LIMIT`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config import parse_size
from penstock.spark.settings import read_settings

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

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


def batch_limits(bridge: Bridge) -> BatchLimits:
    """Return what bounds batches in the user's session."""
    found = read_settings(bridge.session, "spark.sql.execution.arrow.")
    return BatchLimits(int(found.get(_ROWS, _OWN_ROWS)), parse_size(found.get(LIMIT, _OWN_LIMIT)))


def arrow_width(node: LogicalNode) -> int | None:
    """Return the most bytes that a function is given for a row; None if that has no bound or is not known."""
    found = int(node._bridge.helper("ArrowRows").width(node))
    return None if found < 0 else found
