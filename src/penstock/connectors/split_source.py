"""Sources whose splits Python reads as Arrow record batches."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connectors.base import DataFrameScanProvider, ParallelismInferenceContext, ScanContext
from penstock.connectors.splits import evenly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class SplitSource(DataFrameScanProvider):
    """A source that lists its splits on the driver and reads each split in a task.

    Write `schema`, `enumerate_splits` and `read_split`. Splits and the source itself are pickled. Set
    `uses_predicates` to True if it uses the predicates of its context.
    """

    uses_predicates: ClassVar[bool] = False

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The schema of the rows."""

    @abstractmethod
    def enumerate_splits(self, context: ScanContext) -> Sequence[Any]:
        """Return the splits. Called on the driver; should not read the data.

        Make splits of about ``context.data_volume_per_task`` bytes. If there are more than ``context.parallelism``,
        some tasks read several.
        """

    @abstractmethod
    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a split with these columns in this order. Called in a task, again if the task failed."""

    def split_size(self, split: Any) -> int:  # noqa: ARG002
        """Return about how large a split is, in any unit. Tasks with several splits get about equal sizes."""
        return 1

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of splits."""
        bound, volume = context.parallelism_inference_upper_bound, context.data_volume_per_task
        return len(self.enumerate_splits(ScanContext(bound, volume, context.columns, context.predicates)))

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows as plain Spark reads them; the splits are listed when the query runs."""
        return self._scan(spark, self.schema.fieldNames(), None)

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the splits, distributed over the tasks."""
        columns = self.schema.fieldNames() if context.columns is None else context.columns
        columns = columns or self.schema.fieldNames()[:1]  # rows that are only counted need a column all the same
        return self._scan(spark, columns, assigned(self, self.enumerate_splits(context), context.parallelism))

    def _scan(self, spark: SparkSession, columns: Sequence[str], tasks: list[list[Any]] | None) -> DataFrame:
        from penstock.connectors.split_format import scan

        return scan(spark, self, list(columns), tasks)


def assigned(source: SplitSource, splits: Sequence[Any], parallelism: int) -> list[list[Any]]:
    """Return the splits that each task reads: the largest first, each to the task with the least."""
    groups = evenly([source.split_size(split) for split in splits], parallelism)
    return [[splits[i] for i in group] for group in groups]


def arrow_schema(schema: StructType, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return a schema, or some columns of it, as the record batches of `SplitSource.read_split` have it."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    wanted = schema if columns is None else StructType([schema[name] for name in columns])
    parameters = inspect.signature(to_arrow_schema).parameters
    since_4_3: dict[str, Any] = {"timezone": "UTC"} if "timezone" in parameters else {}
    return to_arrow_schema(wanted, **since_4_3)


def with_partition(batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a batch of a file with a schema's columns; those of its partition have one value in all rows."""
    import pyarrow as pa

    arrays = [
        pa.array([values[one.name]] * batch.num_rows, one.type)
        if one.name in values
        else batch.column(one.name).cast(one.type)
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
