"""Logs of a web server: a folder for each day, with compressed files of lines such as ``10.0.0.1 200 5120``.

`GzipLogs` reads them, `GzipLogSink` writes them.
"""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.connectors import Sink, SinkJob, SplitSource
from penstock.connectors.predicates import ColumnStatistics, might_match
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors import ScanContext

Files = tuple[str, ...]
"""A split: the files that one task reads, all of one day."""
_TYPES = {"day": pa.string(), "host": pa.string(), "status": pa.int32(), "bytes": pa.int64()}
_UNPACKED = 5
"""How many times larger the lines are than their compressed file."""


@dataclass(frozen=True)
class GzipLogs(SplitSource):
    """The lines of a folder of logs.

    Parameters
    ----------
    folder
        Has a folder ``day=2026-11-01`` for each day.
    """

    folder: str
    name = "logs"
    schema = StructType().add("day", "string").add("host", "string").add("status", "integer").add("bytes", "long")
    uses_predicates: ClassVar[bool] = True

    def enumerate_splits(self, context: ScanContext) -> list[Files]:
        """Return the files of the days that matter: as many in a split as a task should read."""
        splits: list[Files] = []
        for place in sorted(Path(self.folder).glob("day=*")):
            day = place.name.removeprefix("day=")
            known = {"day": ColumnStatistics(minimum=day, maximum=day, nulls=0)}
            if not all(might_match(predicate, known) for predicate in context.predicates):
                continue
            for path in sorted(place.glob("*.gz")):
                last = splits[-1] if splits and Path(splits[-1][0]).parent == place else ()
                if last and self.split_size((*last, str(path))) <= context.data_volume_per_task:
                    splits[-1] = (*last, str(path))
                else:
                    splits.append((str(path),))
        return splits

    def split_size(self, split: Files) -> int:
        """Return the bytes of its lines, roughly."""
        return _UNPACKED * sum(Path(path).stat().st_size for path in split)

    def read_split(self, split: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return a batch for each file."""
        schema = pa.schema([(name, _TYPES[name]) for name in columns])
        for path in split:
            day = Path(path).parent.name.removeprefix("day=")
            with gzip.open(path, "rt") as lines:
                rows = [line.split() for line in lines]
            values = {
                "day": [day] * len(rows),
                "host": [row[0] for row in rows],
                "status": [int(row[1]) for row in rows],
                "bytes": [int(row[2]) for row in rows],
            }
            yield pa.RecordBatch.from_pydict({name: values[name] for name in columns}, schema)


@dataclass(frozen=True)
class GzipLogSink(Sink):
    """A new folder of logs.

    Parameters
    ----------
    folder
        Is made; must not exist.
    """

    folder: str
    name = "logs"

    def open(self, spark: SparkSession) -> SinkJob:  # noqa: ARG002
        """Refuse a folder that exists."""
        if Path(self.folder).exists():
            raise SinkError(f"the folder {self.folder} exists", hint="give another one, or remove it")
        return _Writing(Path(self.folder))


class _Writing(SinkJob):
    """Writes into a hidden folder beside the target, which the commit renames."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._hidden = target.with_name(f".{target.name}")

    def write(self, df: DataFrame) -> None:
        lines = df.selectExpr("day", "concat_ws(' ', host, status, bytes) AS line")
        lines.write.partitionBy("day").option("compression", "gzip").text(str(self._hidden))

    def commit(self) -> None:
        self._hidden.rename(self._target)

    def abort(self) -> None:
        shutil.rmtree(self._hidden, ignore_errors=True)
