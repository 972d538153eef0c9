"""The sizes of the files that a sink writes into a table of Delta or Iceberg."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.config.options import SINK_TARGET_FILE_SIZE
from penstock.connectors.base import Sink, SinkJob, SinkOptions, SinkStage, StageReport

if TYPE_CHECKING:
    from collections.abc import Sequence


class SizedTable(Sink):
    """A sink of Parquet files that takes a size for them, as `FileSink` does."""

    target_file_size: int | str | None = None
    auto_compaction: bool | None = None

    def _check_file_size(self) -> None:
        if self.target_file_size is not None:
            size = SINK_TARGET_FILE_SIZE.parse(self.target_file_size, f"sink {self.name}")
            object.__setattr__(self, "target_file_size", size)

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the size that was given, that of the options where there are partition columns, else None."""
        return self._target(options) if self.target_file_size is not None or self.partition_columns else None

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the compaction, if it is asked for."""
        wanted = options.auto_compaction if self.auto_compaction is None else self.auto_compaction
        run = partial(_compact, target=self._target(options))
        return [SinkStage(f"Compaction: {self.name}", run)] if wanted else []

    def _target(self, options: SinkOptions) -> int:
        return self.target_file_size if isinstance(self.target_file_size, int) else options.target_file_size


@runtime_checkable
class Compactable(Protocol):
    """A job of a sink whose files can be merged before they are visible."""

    def compact(self, target: int) -> StageReport:
        """Merge files smaller than half of a size."""


def _compact(job: SinkJob, target: int) -> StageReport:
    return job.compact(target) if isinstance(job, Compactable) else StageReport("nothing", "nothing was written")
