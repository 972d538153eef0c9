"""Footers of Parquet files: their number of rows, and the row groups that a filter can prune."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock.errors import SinkError

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.expressions import Expression

log = logging.getLogger("penstock.sources")

_SAMPLE_FILES = 4
"""Approximate number of files that `row_group_fraction` opens; more would take longer than pruning could save."""
_ROW_COUNTS: dict[tuple[str, int], int] = {}
"""Cache of the number of rows by the path and bytes of a file."""
_MAX_CACHED = 10_000
"""Maximum size of the cache; the oldest entries are dropped."""
_PARQUET = "org.apache.parquet."


def estimate_rows(session: Session, files: Sequence[tuple[str, int]]) -> int | None:
    """Estimate the number of rows of files (path, bytes) from the first file's footer; None if it cannot be read."""
    if not files:
        return 0
    (path, size) = files[0]
    if (path, size) not in _ROW_COUNTS:
        reader = _open(session, path)
        if reader is None:
            return None
        with closing(reader):
            _ROW_COUNTS[path, size] = int(reader.getRecordCount())
        if len(_ROW_COUNTS) > _MAX_CACHED:
            del _ROW_COUNTS[next(key for key in _ROW_COUNTS if key != (path, size))]
    return _ROW_COUNTS[path, size] * sum(size for _, size in files) // max(size, 1)


def row_count(bridge: Bridge, path: str) -> int:
    """Return the number of rows of a file from its footer; raise `SinkError` if that cannot be read."""
    reader = _open(bridge.session, path)
    if reader is None:
        raise SinkError(f"the footer of {path} cannot be read")
    with closing(reader):
        return int(reader.getRecordCount())


def row_group_fraction(paths: Sequence[str], conditions: Sequence[Expression]) -> float:
    """Estimate from a few files the fraction of row groups that may have matching rows; 1.0 without statistics."""
    sample = paths[:: max(len(paths) // _SAMPLE_FILES, 1)]
    bridge = conditions[0]._bridge
    return float(bridge.helper("RowGroups").matchFraction(bridge.session, bridge.seq(sample), bridge.seq(conditions)))


def _open(session: Session, path: str) -> Any | None:
    bridge = session._bridge
    try:
        hadoop = bridge.find("org.apache.hadoop.fs.Path")(path)
        conf = session._handle.sessionState().newHadoopConf()
        file = bridge.find(_PARQUET + "hadoop.util.HadoopInputFile").fromPath(hadoop, conf)
        return bridge.find(_PARQUET + "hadoop.ParquetFileReader").open(file)
    except Exception:
        log.info("the footer of %s cannot be read", path, exc_info=True)
        return None
