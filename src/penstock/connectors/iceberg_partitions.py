"""The partitions of an Iceberg table at write: each file gets rows of one partition, and its entry their values."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any

from penstock.connectors.table_schema import quoted
from penstock.errors import SinkError
from penstock.spark.dataframes import with_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.typedef import Record
    from pyspark.sql import Column, DataFrame

_PREFIX = "penstock_"
_MARK = "v"
"""Begins the name of each folder's value, so that an empty text is not taken for null."""
_KEPT = (
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
_UTC = {"spark.sql.session.timeZone": "UTC"}


@dataclass(frozen=True, slots=True)
class PartitionedBy:
    """A partition field that makes folders.

    Parameters
    ----------
    folder
        The column that Spark makes folders of.
    column
        The table's column.
    transform
        What pyiceberg computes of it.
    source
        The column's type in Iceberg.
    """

    folder: str
    column: str
    transform: Any
    source: Any

    @property
    def is_computed(self) -> bool:
        """Whether pyiceberg computes the values."""
        return str(self.transform) != "identity"

    def of(self, df: DataFrame) -> Column:
        """Return the values as texts that folders can be named by."""
        from pyspark.sql import functions as F

        column = df[quoted(self.column)]
        if self.is_computed:
            column = self._transformed(df)
        kind = df.select(column).schema[0].dataType.typeName()
        match kind:
            case "binary":
                column = F.hex(column)
            case "date":
                column = F.unix_date(column)
            case "timestamp" | "timestamp_ntz":
                column = F.unix_micros(column.cast("timestamp"))
        return F.concat(F.lit(_MARK), column.cast("string"))

    def _transformed(self, df: DataFrame) -> Column:
        """Return what pyiceberg computes, in Spark's tasks."""
        from pyspark.sql.pandas import functions

        arrow_udf: Any = getattr(functions, "arrow_udf", None)
        if arrow_udf is None:
            raise SinkError(
                f"partitions by {self.transform} of column {self.column} cannot be written",
                cause="this release of Spark has no functions on Arrow's columns",
                hint="use Spark 4.1 or newer",
            )
        transform, source = self.transform, self.source
        result = df.schema[self.column].dataType if str(transform).startswith("truncate") else "int"

        def values(array: pa.Array) -> pa.Array:
            return transform.pyarrow_transform(source)(_plain(array))

        values.__annotations__ = {}  # Spark would look for the names of types that only checkers know
        made: Column = arrow_udf(values, result)(df[quoted(self.column)])
        return made

    def value(self, text: str | None) -> Any:
        """Return the value that a folder is named by, as pyiceberg has it in records."""
        return None if text is None else _parsed(text[len(_MARK) :], self.transform.result_type(self.source))


class IcebergPartitions:
    """How rows are divided among the files of a table.

    Parameters
    ----------
    spec
        The table's partition spec.
    schema
        Its columns.
    table
        Its name.

    Raises
    ------
    SinkError
        If there is a transform that pyiceberg does not know, or one of a field within a column.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema, table: str) -> None:
        columns = {one.field_id: one for one in schema.fields}
        self.spec_id = spec.spec_id
        self._fields: list[PartitionedBy | None] = []
        for place, one in enumerate(spec.fields):
            column = columns.get(one.source_id)
            if str(one.transform) == "void":
                self._fields.append(None)
            elif column is None or not one.transform.can_transform(column.field_type):
                raise SinkError(
                    f"table {table} is partitioned by {one.transform} of field {one.source_id}, which is not supported",
                    cause="it is a field within a column" if column is None else "pyiceberg cannot compute it",
                    hint="write it with another engine",
                )
            else:
                found = PartitionedBy(f"{_PREFIX}{place}", column.name, one.transform, column.field_type)
                self._fields.append(found)

    @classmethod
    def of(cls, table: Table) -> IcebergPartitions:
        """Return the partitions that a table has for new rows."""
        return cls(table.spec(), table.schema(), ".".join(table.name()))

    @property
    def folders(self) -> list[str]:
        """The columns that Spark makes folders of; the table's own stay in the files."""
        return [one.folder for one in self._fields if one is not None]

    @property
    def calls_python(self) -> bool:
        """Whether Python functions in Spark's tasks compute some of them."""
        return any(one is not None and one.is_computed for one in self._fields)

    def with_folders(self, df: DataFrame) -> DataFrame:
        """Return rows with these columns."""
        with with_settings(df, _UTC):
            return df.withColumns({one.folder: one.of(df) for one in self._fields if one is not None})

    def record(self, texts: Sequence[str | None]) -> Record:
        """Return the partition of a file, by the values of its `folders`."""
        from pyiceberg.typedef import Record

        found = iter(texts)
        return Record(*(None if one is None else one.value(next(found)) for one in self._fields))


def plain_columns(table: Table) -> list[str]:
    """Return the columns that a table is partitioned by, none if it is by something that is computed of them."""
    fields = [one for one in table.spec().fields if str(one.transform) != "void"]
    names = [table.schema().find_column_name(one.source_id) or "" for one in fields]
    return names if all(str(one.transform) == "identity" for one in fields) else []


def entry_of(table: Table, path: str, partition: Record) -> DataFile:
    """Return the entry of a file: its statistics from its footer, its partition as given."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

    # pyiceberg would find the partition by the file's statistics, which tell nothing of a bucket.
    none = {"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": UNPARTITIONED_PARTITION_SPEC.spec_id}
    found = parquet_file_to_data_file(table.io, table.metadata.model_copy(update=none), path)
    made = DataFile.from_args(**{name: getattr(found, name) for name in _KEPT}, partition=partition)
    made.spec_id = table.spec().spec_id
    return made


def _plain(array: Any) -> Any:
    """Return a column of Spark's in the types that pyiceberg's transforms know."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_large_string(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind):
        return array.cast(pa.binary())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return array.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_decimal(kind):  # their memory must begin at a multiple of 16 there; only a copy is sure to
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array


def _parsed(text: str, kind: Any) -> Any:
    from pyiceberg import types as ice

    found: Any
    match kind:
        case ice.BooleanType():
            found = text == "true"
        case ice.FloatType() | ice.DoubleType():
            found = float(text)
        case ice.StringType():
            found = text
        case ice.UUIDType():
            found = uuid.UUID(hex=text)
        case ice.BinaryType() | ice.FixedType():
            found = bytes.fromhex(text)
        case ice.DecimalType():
            with localcontext(prec=kind.precision):
                found = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale))
        case _:
            found = int(text)
    return found
