"""Rows of an Iceberg table that are deleted by their values (equality deletes), which pyiceberg does not leave out."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_HIDDEN = "penstock deleted by "


@dataclass(slots=True)
class EqualityDeletes:
    """The delete files of a snapshot, and when each file of rows came.

    Parameters
    ----------
    entries
        The entries of delete files.
    unpartitioned
        The numbers of the specs without partition columns: their deletes hold for all files.
    numbers
        The sequence number of each file of rows, by its path; `notice` fills it.
    """

    entries: list[ManifestEntry]
    unpartitioned: frozenset[int]
    numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot) -> EqualityDeletes:
        """Look for delete files in a snapshot.

        Raises
        ------
        SourceError
            If one deletes by a value within a column.
        """
        from pyiceberg.manifest import DataFileContent, ManifestContent

        found = [
            entry
            for manifest in snapshot.manifests(table.io)
            if manifest.content == ManifestContent.DELETES
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES
        ]
        for number in {number for entry in found for number in entry.data_file.equality_ids or ()}:
            if _column(table.metadata, number) is None:
                raise SourceError(
                    f"table {'.'.join(table.name())} cannot be read",
                    cause=f"rows are deleted by the values of a field within a column, number {number}",
                    hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
                )
        return cls(found, frozenset(number for number, spec in table.specs().items() if spec.is_unpartitioned()))

    def notice(self, entry: ManifestEntry) -> bool:
        """Note when a file came; return whether pyiceberg may look at it."""
        from pyiceberg.manifest import DataFileContent

        if entry.data_file.content == DataFileContent.DATA:
            self.numbers[entry.data_file.file_path] = entry.sequence_number or 0
        return bool(entry.data_file.content != DataFileContent.EQUALITY_DELETES)

    def that_hold_for(self, file: DataFile) -> tuple[DataFile, ...]:
        """Return the delete files that came after a file of rows, for its partition or for all."""
        number, found = self.numbers[file.file_path], []
        for entry in self.entries:
            delete = entry.data_file
            is_of_partition = delete.spec_id == file.spec_id and delete.partition == file.partition
            if (entry.sequence_number or 0) > number and (delete.spec_id in self.unpartitioned or is_of_partition):
                found.append(delete)
        return tuple(found)


def with_deleted_by(schema: Schema, metadata: TableMetadata, deletes: Sequence[DataFile]) -> Schema:
    """Return the columns that are read of a file: those of a schema, and others that rows are deleted by."""
    from pyiceberg.schema import Schema

    numbers = sorted({number for one in deletes for number in one.equality_ids or ()})
    have = {one.field_id for one in schema.fields}
    return Schema(*schema.fields, *_keys(metadata, [number for number in numbers if number not in have]))


class DeletedKeys:
    """The values that rows of a file are deleted by.

    Parameters
    ----------
    metadata
        The table.
    io
        Reads its files.
    deletes
        The delete files that hold for the file.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, deletes: Sequence[DataFile]) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema
        from pyiceberg.table import FileScanTask

        by: dict[tuple[int, ...], list[DataFile]] = defaultdict(list)
        for one in deletes:
            by[tuple(one.equality_ids or ())].append(one)
        self._keys = [
            (
                numbers,
                ArrowScan(metadata, io, Schema(*_keys(metadata, numbers)), AlwaysTrue())
                .to_table([FileScanTask(one) for one in files])
                .rename_columns([str(number) for number in numbers]),
            )
            for numbers, files in by.items()
        ]

    def left(self, batch: pa.RecordBatch, names: Mapping[int, str]) -> pa.RecordBatch:
        """Return the rows of a batch that no key deletes.

        Parameters
        ----------
        batch
            The rows.
        names
            What its columns are called, by their numbers.
        """
        import pyarrow.compute as pc

        for numbers, keys in self._keys:
            gone = _are_among([batch.column(names[one]) for one in numbers], [keys[str(one)] for one in numbers])
            batch = batch.filter(pc.invert(gone))
        return batch


def names_of(schema: Schema) -> dict[int, str]:
    """Return what the columns of a schema are called, by their numbers."""
    return {one.field_id: one.name for one in schema.fields}


def _are_among(columns: Sequence[pa.Array], keys: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return for each row whether its values are among some keys; null is equal to null.

    Each column is replaced by the place of its value among those of the keys. Two such places make one number, whose
    place among those of the keys goes on to the next column: so no number is larger than the square of all keys.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    code: Any = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0]))
    wanted: Any = pa.repeat(pa.scalar(0, pa.int64()), len(keys[0]))
    for column, key in zip(columns, keys, strict=True):
        values = pc.unique(key)
        places, of_keys = (pc.index_in(one.cast(values.type), values).cast(pa.int64()) for one in (column, key))
        pairs = pc.add(pc.multiply(wanted, len(values)), of_keys)
        pairs = pairs.combine_chunks() if isinstance(pairs, pa.ChunkedArray) else pairs
        known = pc.unique(pairs)
        code = pc.index_in(pc.add(pc.multiply(code, len(values)), places), known).cast(pa.int64())
        wanted = pc.index_in(pairs, known).cast(pa.int64())
    return pc.is_valid(code)


def _keys(metadata: TableMetadata, numbers: Sequence[int]) -> list[Any]:
    """Return columns by their numbers, with names that no table has: a column may have been renamed, or dropped."""
    from pyiceberg.types import NestedField

    found = [(number, _column(metadata, number)) for number in numbers]
    return [NestedField(number, f"{_HIDDEN}{number}", one.field_type, required=False) for number, one in found if one]


def _column(metadata: TableMetadata, number: int) -> Any:
    """Return a column as the table has it now, or had it last; None of what is within a column."""
    schemas = [metadata.schema(), *sorted(metadata.schemas, key=lambda one: -one.schema_id)]
    return next((one for schema in schemas for one in schema.fields if one.field_id == number), None)
