"""Writes into partitioned Iceberg tables: each file has a single partition, whose values its manifest entry stores."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.pandas import functions

from penstock.connectors.tables.table_schema import quoted
from penstock.errors import SinkError
from penstock.spark.plans.dataframes import with_settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.typedef import Record
    from pyspark.sql import Column, DataFrame

_COLUMN_PREFIX = "penstock_"  # of folder columns: added columns by which Spark writes partition folders
_PREFIX = "v"
"""The prefix of each value in a folder name; it distinguishes an empty string from null."""
_COPIED_FIELDS = (
    "content",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
)
"""The fields of a manifest entry that do not depend on the partition."""
_UTC = {"spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field: a transform of `column`, of type `column_type`; `folder` is the added column of its values."""

    folder: str
    column: str
    transform: Any
    column_type: Any

    @property
    def is_computed(self) -> bool:
        """Whether pyiceberg computes the values, as for all transforms except identity."""
        return str(self.transform) != "identity"

    def folder_column(self, df: DataFrame) -> Column:
        """Return the partition values as strings for folder names."""
        column = self._transformed(df) if self.is_computed else df[quoted(self.column)]
        match df.select(column).schema[0].dataType.typeName():
            case "binary":
                column = F.hex(column)
            case "date":
                column = F.unix_date(column)
            case "timestamp" | "timestamp_ntz":
                column = F.unix_micros(column.cast("timestamp"))
        return F.concat(F.lit(_PREFIX), column.cast("string"))

    def _transformed(self, df: DataFrame) -> Column:
        """Return the values of the transform, which pyiceberg computes in a UDF."""
        arrow_udf: Any = getattr(functions, "arrow_udf", None)
        if arrow_udf is None:
            raise SinkError(
                f"partitions by {self.transform} of column {self.column} cannot be written",
                cause="this release of Spark has no Arrow UDFs",
                hint="use Spark 4.1 or newer",
            )
        transform, column_type = self.transform, self.column_type
        result_type = df.schema[self.column].dataType if str(transform).startswith("truncate") else "int"

        def values(array: pa.Array) -> pa.Array:
            return transform.pyarrow_transform(column_type)(_cast_for_transform(array))

        values.__annotations__ = {}  # Spark would evaluate them, but `pa` is only imported for type checkers
        transformed: Column = arrow_udf(values, result_type)(df[quoted(self.column)])
        return transformed

    def value(self, text: str | None) -> Any:
        """Parse a value of a folder name to the form in pyiceberg's partition records; None for null."""
        return None if text is None else _parse(text[len(_PREFIX) :], self.transform.result_type(self.column_type))


class IcebergPartitions:
    """The current partitioning of a table, which applies to new rows.

    The constructor raises `SinkError` if pyiceberg does not support a transform, or a field is nested.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema, table: str) -> None:
        columns = {column.field_id: column for column in schema.fields}
        self.spec_id = spec.spec_id
        self._fields: list[PartitionField | None] = []  # None for a void transform: its value is always null
        for index, field in enumerate(spec.fields):
            column = columns.get(field.source_id)
            if str(field.transform) == "void":
                self._fields.append(None)
            elif column is None or not field.transform.can_transform(column.field_type):
                partitioning = f"{field.transform} of field {field.source_id}"
                raise SinkError(
                    f"table {table} is partitioned by {partitioning}, which is not supported",
                    cause="it is a nested field" if column is None else "pyiceberg cannot compute it",
                    hint="write it with another engine",
                )
            else:
                name = f"{_COLUMN_PREFIX}{index}"
                self._fields.append(PartitionField(name, column.name, field.transform, column.field_type))

    @classmethod
    def of(cls, table: Table) -> IcebergPartitions:
        """Return the current partitioning of a table."""
        return cls(table.spec(), table.schema(), ".".join(table.name()))

    @property
    def folders(self) -> list[str]:
        """The names of the added columns by which Spark writes partition folders; the files do not contain them."""
        return [field.folder for field in self._fields if field is not None]

    @property
    def calls_python(self) -> bool:
        """Whether UDFs compute some of the partition values."""
        return any(field is not None and field.is_computed for field in self._fields)

    def with_folder_columns(self, df: DataFrame) -> DataFrame:
        """Return rows with the folder columns added."""
        with with_settings(df, _UTC):
            return df.withColumns({field.folder: field.folder_column(df) for field in self._fields if field})

    def record(self, texts: Sequence[str | None]) -> Record:
        """Return the partition record of a file from the values of its `folders`, as strings; None for null."""
        from pyiceberg.typedef import Record

        remaining = iter(texts)  # void fields have no folder
        return Record(*(None if field is None else field.value(next(remaining)) for field in self._fields))


def identity_columns(table: Table) -> list[str]:
    """Return the partition columns of a table; empty if any transform is neither identity nor void."""
    fields = [field for field in table.spec().fields if str(field.transform) != "void"]
    names = [table.schema().find_column_name(field.source_id) or "" for field in fields]
    return names if all(str(field.transform) == "identity" for field in fields) else []


def data_file_of(table: Table, path: str, partition: Record) -> DataFile:
    """Return the manifest entry of a file in a partition, with the statistics of the file's footer."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

    # With the table's spec, pyiceberg would infer the partition from statistics, which is impossible for buckets.
    spec = UNPARTITIONED_PARTITION_SPEC
    metadata = table.metadata.model_copy(update={"partition_specs": [spec], "default_spec_id": spec.spec_id})
    unpartitioned = parquet_file_to_data_file(table.io, metadata, path)
    fields = {name: getattr(unpartitioned, name) for name in _COPIED_FIELDS}
    data_file = DataFile.from_args(**fields, partition=partition)
    data_file.spec_id = table.spec().spec_id
    return data_file


def _cast_for_transform(array: Any) -> Any:
    """Cast a column of Spark to a type that pyiceberg's transforms support."""
    import pyarrow as pa

    if pa.types.is_large_string(array.type):
        return array.cast(pa.string())
    if pa.types.is_large_binary(array.type):
        return array.cast(pa.binary())
    if pa.types.is_timestamp(array.type) and array.type.tz is not None:
        return array.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_decimal(array.type):  # the transforms need 16-byte alignment, which a copy ensures
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array


def _parse(text: str, result_type: Any) -> Any:
    from pyiceberg import types as ice

    value: Any
    match result_type:
        case ice.BooleanType():
            value = text == "true"
        case ice.FloatType() | ice.DoubleType():
            value = float(text)
        case ice.StringType():
            value = text
        case ice.UUIDType():
            value = uuid.UUID(hex=text)
        case ice.BinaryType() | ice.FixedType():
            value = bytes.fromhex(text)
        case ice.DecimalType():
            with localcontext(prec=result_type.precision):
                value = Decimal(text).quantize(Decimal(1).scaleb(-result_type.scale))
        case _:  # integers, dates and timestamps
            value = int(text)
    return value
