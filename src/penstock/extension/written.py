"""Queries whose rows Spark's own writer writes: how many tasks do that, and so how many files there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config.options import SINK_PARALLELISM, SINK_TARGET_FILE_SIZE
from penstock.graph.wording import SPARKS_WRITER
from penstock.results import ResultSink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.connectors.base import SinkOptions
    from penstock.spark.query_hook import Written


def options_for(written: Written, config: Configuration) -> Configuration:
    """Return the options as they hold for what is written: those of the writer, or of the table, go before."""
    return config.for_table("sink.", written.options, written.properties, SPARKS_WRITER)


class WriterSink(ResultSink):
    """Stands for Spark's writer: what the options say of sinks decides the tasks of the last stage.

    Parameters
    ----------
    fetch
        As of a `ResultSink`.
    written
        What is known of the command that writes.
    config
        The options as they hold for it, see `options_for`.
    """

    def __init__(self, fetch: Callable[[DataFrame], Any], written: Written, config: Configuration) -> None:
        super().__init__(SPARKS_WRITER, fetch)
        self._written = written
        self.parallelism = config.maybe_integer(SINK_PARALLELISM)
        asked = config.origin(SINK_TARGET_FILE_SIZE) != "default"
        # Where each task writes a file for each bucket, the size of a task says nothing of the size of a file.
        self._size = config.integer(SINK_TARGET_FILE_SIZE) if asked and not written.has_buckets else None

    @property
    def partition_columns(self) -> Sequence[str]:
        """The columns that become folders."""
        return self._written.folders

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the size that an option gives; Spark's writer has none of its own."""
        del options
        return self._size
