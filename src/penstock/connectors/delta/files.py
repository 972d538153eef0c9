"""The columns and files of a version of a Delta table: column mapping, data skipping, and reading without Spark."""

from __future__ import annotations

import datetime as dt
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.connectors.core.predicates import ColumnStatistics, Predicate, might_match
from penstock.connectors.core.split_source import SplitSource, arrow_schema
from penstock.connectors.files.partition_commit import NULL_FOLDER_VALUE
from penstock.connectors.tables.table_schema import map_fields, quoted
from penstock.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from penstock.connectors.core.base import ScanContext

ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
"""A percent-escaped byte in a path."""
_TRUNCATION_LENGTH = 32
"""The number of characters from which the statistics may truncate strings; truncated minimums remain lower bounds."""
_MAPPING_MODE = "delta.columnMapping.mode"
_MAPPING_PREFIX = "delta.columnMapping."
_PHYSICAL_NAME, _COLUMN_ID = _MAPPING_PREFIX + "physicalName", _MAPPING_PREFIX + "id"
_FILE_COLUMN_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """The columns of a version of a Delta table.

    The schema in the log has the physical names and ids in the metadata of its fields. The column mapping `mode` says
    how columns of a file are matched (see `_key`): by name (``none`` and ``name``) or by ``id``.
    """

    log_schema: StructType
    mode: str = "none"

    @classmethod
    def of(cls, table: DeltaTable) -> DeltaColumns:
        """Return the columns of a table."""
        mode = table.metadata().configuration.get(_MAPPING_MODE) or "none"
        return cls(StructType.fromJson(json.loads(table.schema().to_json())), str(mode))

    @property
    def schema(self) -> StructType:
        """The schema with logical names."""
        return self.log_schema if self.mode == "none" else _with_names(self.log_schema, physical=False)

    @property
    def physical_schema(self) -> StructType:
        """The schema with the names in files."""
        return self.log_schema if self.mode == "none" else _with_names(self.log_schema, physical=True)

    def physical_name(self, column: str) -> str:
        """Return the name of a column in files, folders and statistics."""
        return _name(self.log_schema[column], physical=self.mode != "none")

    def rename_to_logical(self, df: DataFrame) -> DataFrame:
        """Return rows of files with the logical names of their columns; a cast renames nested fields."""
        if self.mode == "none":
            return df
        columns = []
        for logged, logical in zip(self.log_schema, self.schema, strict=True):
            column = df[quoted(_name(logged, physical=True))]
            has_renamed_fields = df.select(column).schema[0].dataType.simpleString() != logical.dataType.simpleString()
            columns.append((column.cast(logical.dataType) if has_renamed_fields else column).alias(logical.name))
        return df.select(columns)

    def names_in_file(self, file: pa.Schema, columns: list[str]) -> dict[str, str]:
        """Return a dictionary from table columns to their names in a file, for those of `columns` that the file has.

        Raise `ValueError` if columns are matched by id, and the file has no ids.
        """
        if self.mode == "id" and not any(_FILE_COLUMN_ID in (field.metadata or {}) for field in file):
            raise ValueError("a file of a table with column mapping by id has no ids")
        names = {self._key_in_file(field): field.name for field in file}
        keys = {column: self._key(self.log_schema[column]) for column in columns}
        return {column: names[key] for column, key in keys.items() if key in names}

    def conform(self, array: pa.Array, field: pa.Field, target: pa.Field) -> pa.Array:
        """Return a column of a file with the type of the table: nested fields are renamed, and missing fields are null.

        `field` is the column in the file, `target` the column that Spark expects.
        """
        if self.mode == "none":
            return array.cast(target.type)
        renamed_type = self._rename_nested(field.type, self.log_schema[target.name].dataType)
        return (array if renamed_type == array.type else array.view(renamed_type)).cast(target.type)

    def _key(self, field: StructField) -> str:
        return str(field.metadata[_COLUMN_ID]) if self.mode == "id" else _name(field, physical=self.mode != "none")

    def _key_in_file(self, field: pa.Field) -> str:
        return (field.metadata or {}).get(_FILE_COLUMN_ID, b"").decode() if self.mode == "id" else str(field.name)

    def _rename_nested(self, file_type: pa.DataType, table_type: DataType) -> pa.DataType:
        """Return the type of a column of a file with the logical names of its nested fields."""
        import pyarrow as pa

        match table_type:
            case StructType():
                by_key = {self._key(field): field for field in table_type}
                fields = []
                for index, inner in enumerate(file_type.fields):
                    field = by_key.get(self._key_in_file(inner))
                    name = f"unknown {index}" if field is None else field.name
                    inner_type = inner.type if field is None else self._rename_nested(inner.type, field.dataType)
                    fields.append(pa.field(name, inner_type))
                return pa.struct(fields)
            case ArrayType():
                return pa.list_(pa.field("element", self._rename_nested(file_type.value_type, table_type.elementType)))
            case MapType():
                key = self._rename_nested(file_type.key_type, table_type.keyType)
                return pa.map_(key, self._rename_nested(file_type.item_type, table_type.valueType))
        return file_type


def _name(field: StructField, *, physical: bool) -> str:
    return str(field.metadata.get(_PHYSICAL_NAME, field.name)) if physical else field.name


def _with_names(schema: StructType, *, physical: bool) -> StructType:
    """Return a schema with logical or physical names, and without the metadata of the column mapping."""

    def change(field: StructField, data_type: DataType) -> StructField:
        metadata = {key: value for key, value in field.metadata.items() if not key.startswith(_MAPPING_PREFIX)}
        return StructField(_name(field, physical=physical), data_type, field.nullable, metadata)

    return cast("StructType", map_fields(schema, change))


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of a version of a Delta table: its path in the table's folder, its bytes, and values of partition columns.

    `selection` is a compressed bitmap in which the bits of rows that are not deleted are set; rows after the last bit
    are not deleted. It is None if no row is deleted.
    """

    path: str
    size: int
    partition: Mapping[str, Any]
    selection: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class DeltaFiles(SplitSource):
    """Files that Arrow reads, because deletion vectors, folder names or the column mapping would mislead Spark."""

    root: str
    files: Sequence[DeltaFile]
    columns: DeltaColumns

    @property
    def schema(self) -> StructType:
        """The table's columns."""
        return self.columns.schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[DeltaFile]:  # noqa: ARG002
        """Return the files."""
        return self.files

    def split_size(self, split: DeltaFile) -> int:
        """Return the bytes of a file."""
        return split.size

    def read_split(self, split: DeltaFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a file that are not deleted."""
        import pyarrow as pa
        from pyarrow import fs, parquet

        schema = arrow_schema(self.schema, columns)
        system, path = fs.FileSystem.from_uri(self.root)
        path = f"{path.rstrip('/')}/{split.path}"
        with parquet.ParquetFile(path, filesystem=system, coerce_int96_timestamp_unit="us") as file:
            file_schema = file.schema_arrow
            names = self.columns.names_in_file(file_schema, [name for name in columns if name not in split.partition])
            # If the file has none of the columns, another column gives the number of rows.
            read_names = sorted(set(names.values())) or file_schema.names[:1]
            begin, selection = 0, _unpack(split.selection)
            for batch in file.iter_batches(columns=read_names):
                rows, begin = _select_rows(batch, selection, begin), begin + batch.num_rows
                arrays = [
                    pa.array([split.partition[field.name]] * rows.num_rows, field.type)
                    if field.name in split.partition
                    else self.columns.conform(
                        rows.column(names[field.name]), file_schema.field(names[field.name]), field
                    )
                    if field.name in names
                    else pa.nulls(rows.num_rows, field.type)  # the file is older than the column
                    for field in schema
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def files_of(table: DeltaTable, predicates: Sequence[Predicate], columns: DeltaColumns) -> list[DeltaFile]:
    """Return the files of a version that may have rows that match the predicates."""
    import pyarrow as pa

    files = []
    partition_by, selections = table.metadata().partition_columns, _selections(table)
    compared = {column for predicate in predicates for column in predicate.columns()}
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        by_column = {name: _statistics(action, name, columns) for name in compared}
        statistics = {name: column for name, column in by_column.items() if column is not None}
        if all(might_match(predicate, statistics) for predicate in predicates):
            partition = {column: action[f"partition.{column}"] for column in partition_by}
            path = unquote(action["path"])
            files.append(DeltaFile(path, action["size_bytes"], partition, selections.pop(path, None)))
    return files


def spark_reads_partition(file: DeltaFile, columns: DeltaColumns) -> bool:
    """Whether Spark reads the right partition values from folder names, which Spark unescapes byte by byte."""
    folders = dict(part.split("=", 1) for part in file.path.split("/")[:-1] if "=" in part)
    for column, value in file.partition.items():
        name = columns.physical_name(column)
        parsed = ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), folders.get(name, ""))
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return False  # timestamps in the log are UTC, and Spark would parse them in the session's time zone
        if name not in folders or (value is None) != (parsed == NULL_FOLDER_VALUE):
            return False
        if isinstance(value, str) and parsed != value:
            return False
    return True


def _selections(table: DeltaTable) -> dict[str, bytes]:
    """Return `DeltaFile.selection` of each file with a deletion vector, by path."""
    import pyarrow as pa

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    root, selections = unquote(table.table_uri).rstrip("/"), {}
    root = root if ":" in root else f"file://{root}"
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, rows in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            file_path = unquote(path)
            if not file_path.startswith(f"{root}/"):
                raise SourceError(f"a deletion vector is of the file {file_path}, which is not in {root}")
            selections[file_path[len(root) + 1 :]] = _pack(rows.values)
    return selections


def _pack(selection: pa.BooleanArray) -> bytes:
    """Compress a bitmap with a bit per row; the last byte is the number of unused bits of the byte before it."""
    import numpy as np

    return zlib.compress(np.packbits(selection.to_numpy(zero_copy_only=False)).tobytes() + bytes([-len(selection) % 8]))


def _unpack(packed: bytes | None) -> Any:
    """Return the NumPy array of booleans that `_pack` compressed, None for None."""
    import numpy as np

    if packed is None:
        return None
    raw = zlib.decompress(packed)
    bits = np.unpackbits(np.frombuffer(raw[:-1], np.uint8))
    return bits[: len(bits) - raw[-1]].astype(bool)


def _select_rows(batch: pa.RecordBatch, selection: Any, begin: int) -> pa.RecordBatch:
    """Return the rows of a batch that are not deleted; `begin` is the index of the batch's first row in the file."""
    import numpy as np
    import pyarrow as pa

    if selection is None:
        return batch
    selected = selection[begin : begin + batch.num_rows]
    mask = np.ones(batch.num_rows, bool)
    mask[: len(selected)] = selected
    return batch if mask.all() else batch.filter(pa.array(mask))


def _statistics(action: Mapping[str, Any], column: str, columns: DeltaColumns) -> ColumnStatistics | None:
    """Return a column's statistics in a file, from the log entry `action`; None if the table lacks the column."""
    if column not in columns.log_schema.fieldNames():
        return None
    kind = columns.log_schema[column].dataType.typeName()
    if f"partition.{column}" in action:
        value = action[f"partition.{column}"]
        rows = action.get("num_records")
        return ColumnStatistics(value, value, rows if value is None else 0, rows)
    name = columns.physical_name(column)
    low, high = action.get(f"min.{name}"), action.get(f"max.{name}")
    # Bounds of doubles ignore NaN; deltalake returns bounds of decimals as doubles, which are inexact. No predicate
    # compares timestamps.
    if kind in {"float", "double", "decimal"} or isinstance(low, dt.datetime):
        low = high = None
    if isinstance(high, str) and len(high) >= _TRUNCATION_LENGTH:
        high = None
    return ColumnStatistics(low, high, action.get(f"null_count.{name}"), action.get("num_records"))
