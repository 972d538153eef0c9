"""Footers of Parquet files: their number of rows, and the row groups that a filter can prune."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.expressions import Expression

log = logging.getLogger("penstock.sources")

_SAMPLE = 4
"""Files whose footers are read; reading more would take longer than it could save."""
_rows: dict[tuple[str, int], int] = {}
"""Cache of the number of rows by path and bytes."""
_MOST_CACHED = 10_000
"""Maximum size of the cache; the oldest entries are dropped."""
_PARQUET = "org.apache.parquet."


def estimate_rows(session: Session, files: Sequence[tuple[str, int]]) -> int | None:
    """Estimate the rows of files, as pairs of path and bytes, from the first footer; None if it cannot be read."""
    if not files:
        return 0
    (path, size) = files[0]
    if (path, size) not in _rows:
        reader = _open(session, path)
        if reader is None:
            return None
        with closing(reader):
            _rows[path, size] = int(reader.getRecordCount())
        if len(_rows) > _MOST_CACHED:
            del _rows[next(key for key in _rows if key != (path, size))]
    return _rows[path, size] * sum(size for _, size in files) // max(size, 1)


def row_count(bridge: Bridge, path: str) -> int:
    """Return the number of rows of a file from its footer."""
    reader = _open(bridge.session, path)
    if reader is None:
        raise SinkError(f"the footer of {path} cannot be read")
    with closing(reader):
        return int(reader.getRecordCount())


def row_group_fraction(paths: Sequence[str], conditions: Sequence[Expression]) -> float:
    """Return the fraction of the files' row groups that may have matching rows; 1.0 without statistics."""
    sample = paths[:: max(len(paths) // _SAMPLE, 1)]
    bridge = conditions[0]._bridge
    return float(bridge.helper("RowGroups").fractionLeft(bridge.session, bridge.seq(sample), bridge.seq(conditions)))


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
