"""Footers of parquet files: how many rows there are, and which row groups a filter can leave out.

Uses (Spark 4.0 to 4.3): ``ParquetFileReader``, ``RowGroupFilter``, and Spark's ``ParquetFilters``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.expressions import Expression
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.sources")

_SAMPLE = 4
"""Files whose footers are looked at; more would keep the driver busy for longer than it could win."""
_rows: dict[tuple[str, int], int] = {}
"""Rows by path and bytes of what was looked at before in this process."""
_MOST_ROWS = 10_000
"""Files whose rows are kept; the oldest are forgotten."""
_PARQUET = "org.apache.parquet."


def estimate_rows(session: Session, files: Sequence[tuple[str, int]]) -> int | None:
    """Return about how many rows files have, given as (path, bytes), by the first footer; None if it cannot be read."""
    if not files:
        return 0
    (path, size) = files[0]
    if (path, size) not in _rows:
        reader = _open(session, path)
        if reader is None:
            return None
        _rows[path, size] = int(reader.getRecordCount())
        reader.close()
        if len(_rows) > _MOST_ROWS:
            del _rows[next(key for key in _rows if key != (path, size))]
    return _rows[path, size] * sum(size for _, size in files) // max(size, 1)


def row_count(bridge: Bridge, path: str) -> int:
    """Return how many rows a file has, by its footer."""
    reader = _open(bridge.session, path)
    if reader is None:
        raise SinkError(f"the footer of {path} cannot be read")
    try:
        return int(reader.getRecordCount())
    finally:
        reader.close()


def row_groups_left(paths: Sequence[str], conditions: Sequence[Expression]) -> float:
    """Return which part of the row groups of some files may hold rows that meet conditions, by their statistics.

    It is 1.0 where nothing can be left out, or nothing is known.
    """
    looked_at = paths[:: max(len(paths) // _SAMPLE, 1)]
    bridge = conditions[0]._bridge
    return float(bridge.helper("RowGroups").partLeft(bridge.session, bridge.seq(looked_at), bridge.seq(conditions)))


def _open(session: Session, path: str) -> Any:
    bridge = session._bridge
    try:
        hadoop = bridge.find("org.apache.hadoop.fs.Path")(path)
        conf = session._handle.sessionState().newHadoopConf()
        file = bridge.find(_PARQUET + "hadoop.util.HadoopInputFile").fromPath(hadoop, conf)
        return bridge.find(_PARQUET + "hadoop.ParquetFileReader").open(file)
    except Exception:
        log.info("the footer of %s cannot be read", path, exc_info=True)
        return None
