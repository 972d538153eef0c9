"""Equality deletes of Iceberg tables, which pyiceberg does not apply."""

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
    """The equality delete files of a snapshot, and the sequence numbers of its data files.

    Parameters
    ----------
    entries
        The manifest entries of equality delete files.
    unpartitioned
        The ids of the specs without partition columns, whose deletes apply to all data files.
    numbers
        The sequence numbers of data files by path; filled by `register`.
    """

    entries: list[ManifestEntry]
    unpartitioned: frozenset[int]
    numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot) -> EqualityDeletes:
        """Collect the equality delete files of a snapshot.

        Raises
        ------
        SourceError
            If a file deletes by a nested field.
        """
        from pyiceberg.manifest import DataFileContent, ManifestContent

        entries = [
            entry
            for manifest in snapshot.manifests(table.io)
            if manifest.content == ManifestContent.DELETES
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES
        ]
        for field_id in {field_id for entry in entries for field_id in entry.data_file.equality_ids or ()}:
            if _column(table.metadata, field_id) is None:
                raise SourceError(
                    f"table {'.'.join(table.name())} cannot be read",
                    cause=f"rows are deleted by the values of a field within a column, number {field_id}",
                    hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
                )
        return cls(entries, frozenset(field_id for field_id, spec in table.specs().items() if spec.is_unpartitioned()))

    def register(self, entry: ManifestEntry) -> bool:
        """Record the sequence number of a data file; return whether pyiceberg may process the entry."""
        from pyiceberg.manifest import DataFileContent

        if entry.data_file.content == DataFileContent.DATA:
            self.numbers[entry.data_file.file_path] = entry.sequence_number or 0
        return bool(entry.data_file.content != DataFileContent.EQUALITY_DELETES)

    def applicable_to(self, file: DataFile) -> tuple[DataFile, ...]:
        """Return the later delete files that apply to a data file: those of its partition, and unpartitioned ones."""
        number, deletes = self.numbers[file.file_path], []
        for entry in self.entries:
            delete = entry.data_file
            is_same_partition = delete.spec_id == file.spec_id and delete.partition == file.partition
            if (entry.sequence_number or 0) > number and (delete.spec_id in self.unpartitioned or is_same_partition):
                deletes.append(delete)
        return tuple(deletes)


def with_delete_keys(schema: Schema, metadata: TableMetadata, deletes: Sequence[DataFile]) -> Schema:
    """Return a schema extended by the key columns of delete files that it lacks."""
    from pyiceberg.schema import Schema

    ids = sorted({field_id for delete in deletes for field_id in delete.equality_ids or ()})
    present = {field.field_id for field in schema.fields}
    return Schema(*schema.fields, *_key_fields(metadata, [field_id for field_id in ids if field_id not in present]))


class DeletedKeys:
    """The deleted keys of a data file.

    Parameters
    ----------
    metadata
        The metadata of the table.
    io
        Reads the delete files.
    deletes
        The delete files that apply to the data file.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, deletes: Sequence[DataFile]) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema
        from pyiceberg.table import FileScanTask

        by_columns: dict[tuple[int, ...], list[DataFile]] = defaultdict(list)
        for delete in deletes:
            by_columns[tuple(delete.equality_ids or ())].append(delete)
        self._keys = [
            (
                ids,
                ArrowScan(metadata, io, Schema(*_key_fields(metadata, ids)), AlwaysTrue())
                .to_table([FileScanTask(file) for file in files])
                .rename_columns([str(field_id) for field_id in ids]),
            )
            for ids, files in by_columns.items()
        ]

    def apply(self, batch: pa.RecordBatch, names: Mapping[int, str]) -> pa.RecordBatch:
        """Return the rows of a batch that are not deleted.

        Parameters
        ----------
        batch
            The rows.
        names
            The names of its columns, by field id.
        """
        import pyarrow.compute as pc

        for ids, keys in self._keys:
            columns = [batch.column(names[field_id]) for field_id in ids]
            batch = batch.filter(pc.invert(_are_among(columns, [keys[str(field_id)] for field_id in ids])))
        return batch


def names_by_id(schema: Schema) -> dict[int, str]:
    """Return the names of a schema's columns by field id."""
    return {field.field_id: field.name for field in schema.fields}


def _are_among(columns: Sequence[pa.Array], keys: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return for each row whether its values are among the keys; null equals null.

    Columns are combined in sequence. The index of a value among the distinct values of the keys, and the code
    of the columns before, give a pair; the index of the pair among the distinct pairs of the keys is the next code. So
    no number exceeds the square of the number of keys.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    code: Any = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0]))
    key_code: Any = pa.repeat(pa.scalar(0, pa.int64()), len(keys[0]))
    for column, key in zip(columns, keys, strict=True):
        values = pc.unique(key)
        indices, key_indices = (
            pc.index_in(array.cast(values.type), values).cast(pa.int64()) for array in (column, key)
        )
        pairs = pc.add(pc.multiply(key_code, len(values)), key_indices)
        pairs = pairs.combine_chunks() if isinstance(pairs, pa.ChunkedArray) else pairs
        distinct = pc.unique(pairs)
        code = pc.index_in(pc.add(pc.multiply(code, len(values)), indices), distinct).cast(pa.int64())
        key_code = pc.index_in(pairs, distinct).cast(pa.int64())
    return pc.is_valid(code)


def _key_fields(metadata: TableMetadata, ids: Sequence[int]) -> list[Any]:
    """Return columns by field id under reserved names, as a column may have been renamed or dropped since."""
    from pyiceberg.types import NestedField

    fields = [_column(metadata, field_id) for field_id in ids]
    return [
        NestedField(field.field_id, f"{_HIDDEN}{field.field_id}", field.field_type, required=False)
        for field in fields
        if field
    ]


def _column(metadata: TableMetadata, field_id: int) -> Any:
    """Return the latest definition of a column; None for a nested field."""
    schemas = [metadata.schema(), *sorted(metadata.schemas, key=lambda schema: -schema.schema_id)]
    return next((field for schema in schemas for field in schema.fields if field.field_id == field_id), None)
