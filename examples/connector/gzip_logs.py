"""Source and sink for web server logs: a folder per day, with gzip files of lines such as ``10.0.0.1 200 5120``."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.connectors import Sink, SinkJob, SplitSource
from penstock.connectors.core.predicates import ColumnStatistics, might_match
from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors import ScanContext

Files = tuple[str, ...]
"""A split: files of the same day that a task reads together."""
_TYPES = {"day": pa.string(), "host": pa.string(), "status": pa.int32(), "bytes": pa.int64()}
_UNPACKED = 5
"""Assumed compression ratio."""


@dataclass(frozen=True)
class GzipLogs(SplitSource):
    """Source of the lines in a folder of logs.

    Parameters
    ----------
    folder
        The folder that contains ``day=2026-11-01`` and so on.
    """

    folder: str
    name = "logs"
    schema = StructType().add("day", "string").add("host", "string").add("status", "integer").add("bytes", "long")
    uses_predicates: ClassVar[bool] = True

    def enumerate_splits(self, context: ScanContext) -> list[Files]:
        """Pack the files of each day that can match into splits of the data volume per task."""
        splits: list[Files] = []
        for day_folder in sorted(Path(self.folder).glob("day=*")):
            day = day_folder.name.removeprefix("day=")
            statistics = {"day": ColumnStatistics(minimum=day, maximum=day, nulls=0)}
            if not all(might_match(predicate, statistics) for predicate in context.predicates):
                continue
            for path in sorted(day_folder.glob("*.gz")):
                last = splits[-1] if splits and Path(splits[-1][0]).parent == day_folder else ()
                if last and self.split_size((*last, str(path))) <= context.data_volume_per_task:
                    splits[-1] = (*last, str(path))
                else:
                    splits.append((str(path),))
        return splits

    def split_size(self, split: Files) -> int:
        """Estimate the uncompressed bytes."""
        return _UNPACKED * sum(Path(path).stat().st_size for path in split)

    def read_split(self, split: Files, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield a batch for each file."""
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
    """Sink that writes a new folder of logs.

    Parameters
    ----------
    folder
        Must not exist; the sink creates it.
    """

    folder: str
    name = "logs"

    def open(self, spark: SparkSession) -> SinkJob:  # noqa: ARG002
        """Raise an error if the folder exists."""
        if Path(self.folder).exists():
            raise SinkError(f"the folder {self.folder} exists", hint="choose another folder, or remove it")
        return _GzipLogSinkJob(Path(self.folder))


class _GzipLogSinkJob(SinkJob):
    """Write to a hidden folder beside the target, which the commit renames."""

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
