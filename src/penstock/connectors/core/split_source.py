"""Sources whose splits Python reads as Arrow record batches."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.connectors.core.base import DataFrameScanProvider, ParallelismInferenceContext, ScanContext
from penstock.connectors.core.splits import distribute_evenly

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SplitSource(DataFrameScanProvider):
    """Base class of sources that list their splits on the driver and read each split in a task.

    Implement `schema`, `enumerate_splits` and `read_split`. Splits and the source itself are pickled for the tasks. Set
    `uses_predicates` to True if `enumerate_splits` uses the predicates of its context.

    >>> class Squares(SplitSource):
    ...     schema = StructType().add("square", "long")
    ...     def enumerate_splits(self, context):
    ...         return [0, 1, 2]
    ...     def read_split(self, split, columns):
    ...         yield pa.RecordBatch.from_pydict({"square": [split * split]})
    >>> read_splits(Squares()).rows
    [(0,), (1,), (4,)]
    """

    uses_predicates: ClassVar[bool] = False

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The schema of the rows."""

    @abstractmethod
    def enumerate_splits(self, context: ScanContext) -> Sequence[Any]:
        """Return the splits. Called on the driver; should not read the data.

        Splits should have about ``context.data_volume_per_task`` bytes. If there are more than ``context.parallelism``,
        some tasks read several.
        """

    @abstractmethod
    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a split, with these columns in this order. Called in a task (and in its retries)."""

    def split_size(self, split: Any) -> int:  # noqa: ARG002
        """Return the approximate size of a split, in any unit. It balances tasks that read several splits."""
        return 1

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits."""
        bound, volume = context.parallelism_inference_upper_bound, context.data_volume_per_task
        return len(self.enumerate_splits(ScanContext(bound, volume, context.columns, context.predicates)))

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows as plain Spark reads them; the splits are listed when the query runs."""
        return self._scan(spark, self.schema.fieldNames(), None)

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return a DataFrame whose tasks read the splits; large splits are distributed first."""
        columns = self.schema.fieldNames() if context.columns is None else context.columns
        columns = columns or self.schema.fieldNames()[:1]  # a record batch without columns has no rows to count
        return self._scan(spark, columns, assign_splits(self, self.enumerate_splits(context), context.parallelism))

    def _scan(self, spark: SparkSession, columns: Sequence[str], tasks: list[list[Any]] | None) -> DataFrame:
        from penstock.connectors.core.split_format import scan

        return scan(spark, self, list(columns), tasks)


def assign_splits(source: SplitSource, splits: Sequence[Any], parallelism: int) -> list[list[Any]]:
    """Return the splits of each task; the largest splits are assigned first, each to the least loaded task."""
    return distribute_evenly(splits, [source.split_size(split) for split in splits], parallelism)


def arrow_schema(schema: StructType, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the Arrow schema of the record batches of `SplitSource.read_split`, for all or some columns."""
    selected = schema if columns is None else StructType([schema[name] for name in columns])
    parameters = inspect.signature(to_arrow_schema).parameters
    timezone_argument: dict[str, Any] = {"timezone": "UTC"} if "timezone" in parameters else {}  # Spark 4.3
    return to_arrow_schema(selected, **timezone_argument)
