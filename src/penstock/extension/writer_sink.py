"""The sink of queries whose rows Spark's own writer writes: it sets the number of writing tasks, and so of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config.options import SINK_PARALLELISM, SINK_TARGET_FILE_SIZE
from penstock.graph.labels import SPARKS_WRITER
from penstock.results import ResultSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.connectors.base import SinkOptions
    from penstock.spark.query_hook import WriteCommand


def options_for(written: WriteCommand, config: Configuration) -> Configuration:
    """Return the options for a write command: options of the writer, or of the table, take precedence."""
    return config.for_table("sink.", written.options, written.properties, SPARKS_WRITER)


class WriterSink(ResultSink):
    """Represents Spark's writer: the sink options decide the number of tasks of the last stage."""

    def __init__(self, fetch: Callable[[DataFrame], Any], written: WriteCommand, config: Configuration) -> None:
        super().__init__(SPARKS_WRITER, fetch)
        self._written = written
        self.parallelism = config.maybe_integer(SINK_PARALLELISM)
        is_set = config.origin(SINK_TARGET_FILE_SIZE) != "default"
        # With buckets, each task writes a file for each bucket, so the size of a task does not determine the file size.
        self._size = config.integer(SINK_TARGET_FILE_SIZE) if is_set and not written.has_buckets else None

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns, each of which becomes a level of folders."""
        return self._written.folders

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the target file size in bytes from the options, None if it is not set."""
        del options
        return self._size
