"""The files of a version of a Delta table: data skipping, and reading without Spark."""

from __future__ import annotations

import datetime as dt
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.connectors.partition_commit import NO_VALUE
from penstock.connectors.predicates import ColumnStatistics, Predicate, might_match
from penstock.connectors.split_source import SplitSource, arrow_schema
from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    from penstock.connectors.base import ScanContext
    from penstock.connectors.delta_columns import DeltaColumns

_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_TRUNCATION_LENGTH = 32
"""The length from which string statistics may be truncated."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of a version of a Delta table.

    Parameters
    ----------
    path
        Relative to the table's folder.
    size
        Its size in bytes.
    partition
        The values of the partition columns.
    selection
        A compressed bitmap of its rows, with bits set for rows that are not deleted; rows after the last bit are not
        deleted. None if no row is deleted.
    """

    path: str
    size: int
    partition: Mapping[str, Any]
    selection: bytes | None = field(default=None, repr=False)


class DeltaFiles(SplitSource):
    """Files that Spark's Parquet reader cannot read: with deletion vectors, or with mapped folder or column names.

    Parameters
    ----------
    root
        The table's folder.
    files
        The files.
    columns
        The table's columns.
    """

    def __init__(self, root: str, files: Sequence[DeltaFile], columns: DeltaColumns) -> None:
        self._root = root
        self._files = files
        self._columns = columns
        self._schema = columns.schema

    @property
    def schema(self) -> StructType:
        """The table's columns."""
        return self._schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[DeltaFile]:  # noqa: ARG002
        """Return the files."""
        return self._files

    def split_size(self, split: DeltaFile) -> int:
        """Return the bytes of a file."""
        return split.size

    def read_split(self, split: DeltaFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a file that are not deleted."""
        import pyarrow as pa
        from pyarrow import fs, parquet

        schema = arrow_schema(self._schema, columns)
        system, path = fs.FileSystem.from_uri(self._root)
        path = f"{path.rstrip('/')}/{split.path}"
        with parquet.ParquetFile(path, filesystem=system, coerce_int96_timestamp_unit="us") as file:
            file_schema = file.schema_arrow
            names = self._columns.names_in_file(file_schema, [name for name in columns if name not in split.partition])
            # If the file has none of the columns, another column gives the number of rows.
            read = sorted(set(names.values())) or file_schema.names[:1]
            begin, selection = 0, _unpack(split.selection)
            for batch in file.iter_batches(columns=read):
                rows, begin = _select(batch, selection, begin), begin + batch.num_rows
                arrays = [
                    pa.array([split.partition[field.name]] * rows.num_rows, field.type)
                    if field.name in split.partition
                    else self._columns.conform(
                        rows.column(names[field.name]), file_schema.field(names[field.name]), field
                    )
                    if field.name in names
                    else pa.nulls(rows.num_rows, field.type)
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
    """Return whether Spark reads the right partition values from folder names, which it unescapes bytewise."""
    folders = dict(part.split("=", 1) for part in file.path.split("/")[:-1] if "=" in part)
    for column, value in file.partition.items():
        name = columns.physical_name(column)
        parsed = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), folders.get(name, ""))
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return False  # timestamps in the log are UTC, and Spark would parse them in the session's time zone
        if name not in folders or (value is None) != (parsed == NO_VALUE):
            return False
        if isinstance(value, str) and parsed != value:
            return False
    return True


def has_deleted_rows(table: DeltaTable) -> bool:
    """Return whether files of a table may have deletion vectors."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def _selections(table: DeltaTable) -> dict[str, bytes]:
    """Return the compressed bitmaps of the rows that are not deleted, by path, of files with deletion vectors."""
    import pyarrow as pa

    if not has_deleted_rows(table):
        return {}
    root, selections = unquote(table.table_uri).rstrip("/"), {}
    root = root if ":" in root else f"file://{root}"
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, rows in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            plain = unquote(path)
            if not plain.startswith(f"{root}/"):
                raise SourceError(f"the deletion vector of {plain} is not of a file in {root}")
            selections[plain[len(root) + 1 :]] = _pack(rows.values)
    return selections


def _pack(selection: pa.BooleanArray) -> bytes:
    """Compress a bitmap with a bit per row; most files have few deleted rows."""
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


def _select(batch: pa.RecordBatch, selection: Any, begin: int) -> pa.RecordBatch:
    """Return the rows of a batch that are not deleted; `begin` is the row of the file at which the batch begins."""
    import numpy as np
    import pyarrow as pa

    if selection is None:
        return batch
    selected = selection[begin : begin + batch.num_rows]
    mask = np.ones(batch.num_rows, bool)
    mask[: len(selected)] = selected
    return batch if mask.all() else batch.filter(pa.array(mask))


def _statistics(action: Mapping[str, Any], column: str, columns: DeltaColumns) -> ColumnStatistics | None:
    """Return the statistics in the log of a column in a file; None if the table lacks the column."""
    if column not in columns.log_schema.fieldNames():
        return None
    kind = columns.log_schema[column].dataType.typeName()
    if f"partition.{column}" in action:
        value = action[f"partition.{column}"]
        rows = action.get("num_records")
        return ColumnStatistics(value, value, rows if value is None else 0, rows)
    name = columns.physical_name(column)
    low, high = action.get(f"min.{name}"), action.get(f"max.{name}")
    # Bounds of doubles ignore NaN; deltalake returns bounds of decimals as doubles, which are inexact.
    if kind in {"float", "double", "decimal"} or isinstance(low, dt.datetime):
        low = high = None
    if isinstance(high, str) and len(high) >= _TRUNCATION_LENGTH:
        high = None
    return ColumnStatistics(low, high, action.get(f"null_count.{name}"), action.get("num_records"))
