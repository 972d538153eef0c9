"""The files of a version of a Delta table: which may hold rows that matter, and how they are read without Spark."""

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
_CERTAIN = 32
"""Statistics of longer texts may be cut off."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """A file of a version.

    Parameters
    ----------
    path
        Relative to the table's folder.
    size
        Its bytes.
    partition
        The values of the partition columns.
    kept
        Which of its rows are not deleted, from the first on, a bit for each, compressed; rows after the last bit are
        not deleted. None where no row is.
    """

    path: str
    size: int
    partition: Mapping[str, Any]
    kept: bytes | None = field(default=None, repr=False)


class DeltaFiles(SplitSource):
    """Files that Spark cannot read by itself: their rows are deleted, or their folders or columns have other names.

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

        wanted = arrow_schema(self._schema, columns)
        system, path = fs.FileSystem.from_uri(self._root)
        path = f"{path.rstrip('/')}/{split.path}"
        with parquet.ParquetFile(path, filesystem=system, coerce_int96_timestamp_unit="us") as file:
            known = file.schema_arrow
            found = self._columns.places(known, [name for name in columns if name not in split.partition])
            # A file without any of the columns still tells how many rows there are.
            read = sorted(set(found.values())) or known.names[:1]
            begin, kept = 0, _bits(split.kept)
            for batch in file.iter_batches(columns=read):
                rows, begin = _left(batch, kept, begin), begin + batch.num_rows
                arrays = [
                    pa.array([split.partition[one.name]] * rows.num_rows, one.type)
                    if one.name in split.partition
                    else self._columns.in_shape(rows.column(found[one.name]), known.field(found[one.name]), one)
                    if one.name in found
                    else pa.nulls(rows.num_rows, one.type)
                    for one in wanted
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def files_of(table: DeltaTable, predicates: Sequence[Predicate], columns: DeltaColumns) -> list[DeltaFile]:
    """Return the files of a version that may hold rows that matter."""
    import pyarrow as pa

    kept = []
    by, deleted = table.metadata().partition_columns, _deleted(table)
    compared = {column for predicate in predicates for column in predicate.columns()}
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        statistics = {name: found for name in compared if (found := _statistics(action, name, columns)) is not None}
        if all(might_match(predicate, statistics) for predicate in predicates):
            partition = {column: action[f"partition.{column}"] for column in by}
            path = unquote(action["path"])
            kept.append(DeltaFile(path, action["size_bytes"], partition, deleted.pop(path, None)))
    return kept


def spark_finds(file: DeltaFile, columns: DeltaColumns) -> bool:
    """Whether Spark reads the partition of a file off the names of its folders: it unescapes them byte by byte."""
    named = dict(part.split("=", 1) for part in file.path.split("/")[:-1] if "=" in part)
    for column, value in file.partition.items():
        name = columns.in_file(column)
        told = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), named.get(name, ""))
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            return False  # the log's times are UTC, and Spark would take them for times of the session's zone
        if name not in named or (isinstance(value, str) and told != value) or (value is None) != (told == NO_VALUE):
            return False
    return True


def has_deleted_rows(table: DeltaTable) -> bool:
    """Whether rows of a table's files may be deleted by deletion vectors."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def _deleted(table: DeltaTable) -> dict[str, bytes]:
    """Return which rows are left of the files with deletion vectors, by path."""
    import pyarrow as pa

    if not has_deleted_rows(table):
        return {}
    root, found = unquote(table.table_uri).rstrip("/"), {}
    root = root if ":" in root else f"file://{root}"
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for path, rows in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            plain = unquote(path)
            if not plain.startswith(f"{root}/"):
                raise SourceError(f"the deletion vector of {plain} is not of a file in {root}")
            found[plain[len(root) + 1 :]] = _packed(rows.values)
    return found


def _packed(kept: pa.BooleanArray) -> bytes:
    """Return bits, one for each row, compressed: few rows are deleted of most files."""
    import numpy as np

    return zlib.compress(np.packbits(kept.to_numpy(zero_copy_only=False)).tobytes() + bytes([-len(kept) % 8]))


def _bits(packed: bytes | None) -> Any:
    """Return which rows are kept, None where all are."""
    import numpy as np

    if packed is None:
        return None
    told = zlib.decompress(packed)
    bits = np.unpackbits(np.frombuffer(told[:-1], np.uint8))
    return bits[: len(bits) - told[-1]].astype(bool)


def _left(batch: pa.RecordBatch, kept: Any, begin: int) -> pa.RecordBatch:
    """Return the rows of a batch that are not deleted; the batch begins at a row of its file."""
    import numpy as np
    import pyarrow as pa

    if kept is None:
        return batch
    told = kept[begin : begin + batch.num_rows]
    mask = np.ones(batch.num_rows, bool)
    mask[: len(told)] = told
    return batch if mask.all() else batch.filter(pa.array(mask))


def _statistics(action: Mapping[str, Any], column: str, columns: DeltaColumns) -> ColumnStatistics | None:
    """Return what the log tells of a column in one file; None where Spark's order may be another than the log's."""
    if column not in columns.told.fieldNames():
        return None
    kind = columns.told[column].dataType.typeName()
    if f"partition.{column}" in action:
        value = action[f"partition.{column}"]
        rows = action.get("num_records")
        return ColumnStatistics(value, value, rows if value is None else 0, rows)
    name = columns.in_file(column)
    low, high = action.get(f"min.{name}"), action.get(f"max.{name}")
    # Doubles have NaN, which no bound tells of; deltalake keeps the bounds of decimals as doubles, which are not exact.
    if kind in {"float", "double", "decimal"} or isinstance(low, dt.datetime):
        low = high = None
    if isinstance(high, str) and len(high) >= _CERTAIN:
        high = None
    return ColumnStatistics(low, high, action.get(f"null_count.{name}"), action.get("num_records"))
