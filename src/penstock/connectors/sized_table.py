"""Base class of sinks with a target file size: tables of Delta and Iceberg."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.config.options import SINK_TARGET_FILE_SIZE
from penstock.connectors.base import Sink, SinkJob, SinkOptions, SinkStage, StageReport

if TYPE_CHECKING:
    from collections.abc import Sequence


class SizedTable(Sink):
    """A sink that writes Parquet files of a target size into a table."""

    target_file_size: int | str | None = None
    auto_compaction: bool | None = None

    def _check_file_size(self) -> None:
        if self.target_file_size is not None:
            size = SINK_TARGET_FILE_SIZE.parse(self.target_file_size, f"sink {self.name}")
            object.__setattr__(self, "target_file_size", size)

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the size of this sink; else, with partition columns, that of the job's options; else None."""
        return self._target(options) if self.target_file_size is not None or self.partition_columns else None

    def stages(self, options: SinkOptions) -> Sequence[SinkStage]:
        """Return the compaction, if it is enabled."""
        is_enabled = options.auto_compaction if self.auto_compaction is None else self.auto_compaction
        run = partial(_compact, target=self._target(options))
        return [SinkStage(f"Compaction: {self.name}", run)] if is_enabled else []

    def _target(self, options: SinkOptions) -> int:
        return self.target_file_size if isinstance(self.target_file_size, int) else options.target_file_size


@runtime_checkable
class Compactable(Protocol):
    """A sink job whose files can be compacted before they become visible."""

    def compact(self, target: int) -> StageReport:
        """Merge files smaller than half the target size, in bytes."""


def _compact(job: SinkJob, target: int) -> StageReport:
    return job.compact(target) if isinstance(job, Compactable) else StageReport("nothing", "nothing was written")
