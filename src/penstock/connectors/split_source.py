"""Sources whose splits are read by Python, as record batches of Arrow."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import DataFrameScanProvider, ParallelismInferenceContext, ScanContext
from penstock.connectors.splits import evenly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SplitSource(DataFrameScanProvider):
    """A source that tells its splits on the driver, and reads each of them in a task.

    Write `schema`, `enumerate_splits` and `read_split`; splits and the source itself are pickled.
    """

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The schema of the rows."""

    @abstractmethod
    def enumerate_splits(self, context: ScanContext) -> Sequence[Any]:
        """Return the splits, on the driver and without reading the data.

        As many as the data makes of ``context.data_volume_per_task``; if there are more than ``context.parallelism``,
        some tasks read several.
        """

    @abstractmethod
    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a split, with these columns in this order. Called in a task; may be called again."""

    def split_size(self, split: Any) -> int:  # noqa: ARG002
        """Return about how large a split is, in any unit; splits of one task are chosen by it."""
        return 1

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits."""
        bound, volume = context.parallelism_inference_upper_bound, context.data_volume_per_task
        return len(self.enumerate_splits(ScanContext(bound, volume, context.columns, context.predicates)))

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows as plain Spark reads them; the splits are told when the query runs."""
        return self._scan(spark, self.schema.fieldNames(), None)

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the splits, dealt to the tasks."""
        splits = self.enumerate_splits(context)
        dealt = evenly([self.split_size(split) for split in splits], context.parallelism)
        columns = self.schema.fieldNames() if context.columns is None else context.columns
        columns = columns or self.schema.fieldNames()[:1]  # rows that are only counted need a column all the same
        return self._scan(spark, columns, [[splits[i] for i in group] for group in dealt])

    def _scan(self, spark: SparkSession, columns: Sequence[str], tasks: list[list[Any]] | None) -> DataFrame:
        from penstock.connectors.split_format import scan

        return scan(spark, self, list(columns), tasks)
