"""Files of Iceberg tables, read by pyiceberg in Spark's tasks with deletes applied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import from_arrow_schema

from penstock.connectors.core.split_source import SplitSource, arrow_schema
from penstock.connectors.core.splits import OPEN_COST, distribute_evenly
from penstock.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql.types import StructType

    from penstock.connectors.core.base import ScanContext
    from penstock.connectors.core.predicates import Predicate

_KEY_COLUMN_PREFIX = "penstock deleted by "  # of columns that are read only to apply equality deletes


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A data file: pyiceberg's scan `task`, which applies positional deletes, and the file's equality `deletes`."""

    task: FileScanTask
    deletes: tuple[DataFile, ...] = ()

    @property
    def path(self) -> str:
        """The path of the file."""
        return str(self.task.file.file_path)

    @property
    def is_plain(self) -> bool:
        """Whether Spark can read the file: it is Parquet, and no rows are deleted."""
        is_parquet = str(self.task.file.file_format).lower().endswith("parquet")
        return is_parquet and not self.task.delete_files and not self.deletes


def files_of(table: Table, snapshot_id: int, condition: BooleanExpression) -> list[IcebergFile]:
    """Return the files of a snapshot that may have rows that meet a condition.

    Raise `SourceError` if rows are deleted by the values of a nested field, which is not supported.
    """
    snapshot = table.snapshot_by_id(snapshot_id)
    scan = table.scan(row_filter=condition, snapshot_id=snapshot_id)
    deletes = None if snapshot is None else EqualityDeletes.of(table, snapshot)
    if deletes is None or snapshot is None or not deletes.entries:
        return [IcebergFile(task) for task in scan.plan_files()]
    from pyiceberg.table import ManifestGroupPlanner

    planner = ManifestGroupPlanner(table.metadata, table.io, condition)
    tasks = planner.plan_files(snapshot.manifests(table.io), deletes.register)
    return [IcebergFile(task, deletes.applicable_to(task.file)) for task in tasks]


class IcebergFiles(SplitSource):
    """Files of a snapshot that pyiceberg reads in Spark's tasks; `schema` is Spark's schema, `columns` is Iceberg's."""

    def __init__(self, table: Table, files: Sequence[IcebergFile], schema: StructType, columns: Schema) -> None:
        self._metadata = table.metadata
        self._properties = dict(table.io.properties)
        self._location = table.metadata_location
        self._files = list(files)
        self._schema = schema
        self._columns = columns

    @property
    def schema(self) -> StructType:
        """The columns of the snapshot."""
        return self._schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[Any]:
        """Return groups of files; a task reads each group."""
        sizes = [file.task.file.file_size_in_bytes + OPEN_COST for file in self._files]
        tasks = max(1, min(len(sizes), -(-sum(sizes) // context.data_volume_per_task), context.parallelism))
        return distribute_evenly(self._files, sizes, tasks)

    def split_size(self, split: Any) -> int:
        """Return the bytes of a group."""
        return sum(file.task.file.file_size_in_bytes for file in split)

    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group of files, without deleted rows."""
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        schema = arrow_schema(self._schema, columns)
        projected = self._columns.select(*columns)
        io = load_file_io(self._properties, self._location)
        tasks_by_deletes: dict[tuple[DataFile, ...], list[FileScanTask]] = {}
        for file in split:
            tasks_by_deletes.setdefault(file.deletes, []).append(file.task)
        for deletes, tasks in tasks_by_deletes.items():
            keys = _DeletedKeys(self._metadata, io, deletes)
            read_schema = with_delete_keys(projected, self._metadata, deletes)
            names = {field.field_id: field.name for field in read_schema.fields}
            for batch in ArrowScan(self._metadata, io, read_schema, AlwaysTrue()).to_record_batches(tasks):
                rows = pa.Table.from_batches([keys.apply(batch, names)])
                yield from rows.select(list(columns)).cast(schema).to_batches()


def spark_schema(table: Table, snapshot_id: int | None) -> StructType:
    """Return the columns of a snapshot as Spark's schema; the current columns if `snapshot_id` is None."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    arrow = schema_to_pyarrow(schema_of(table, snapshot_id))
    plain = pa.schema([pa.field(field.name, field.type, field.nullable) for field in arrow])  # without metadata
    schema: StructType = from_arrow_schema(plain)
    return schema


def schema_of(table: Table, snapshot_id: int | None) -> Schema:
    """Return Iceberg's schema of a snapshot; the table's current schema if `snapshot_id` is None or has no schema."""
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def condition_of(predicates: Sequence[Predicate], schema: StructType) -> BooleanExpression:
    """Build pyiceberg's filter; skip predicates on columns not in `schema`, or floats: Spark orders NaN differently."""
    from pyiceberg import expressions

    ex: Any = expressions  # its constructors have no types
    comparisons = {
        "=": ex.EqualTo,
        "<": ex.LessThan,
        "<=": ex.LessThanOrEqual,
        ">": ex.GreaterThan,
        ">=": ex.GreaterThanOrEqual,
        "in": ex.In,
        "is null": ex.IsNull,
        "is not null": ex.NotNull,
    }

    def convert(predicate: Predicate) -> Any:
        if predicate.parts:
            connective = ex.And if predicate.operator == "and" else ex.Or
            return connective(*map(convert, predicate.parts))
        values = [predicate.values] if predicate.operator == "in" else predicate.values
        return comparisons[predicate.operator](predicate.column, *values)

    names = set(schema.fieldNames())
    condition: BooleanExpression = ex.AlwaysTrue()
    for predicate in predicates:
        used = set(predicate.columns())
        if used <= names and not any(schema[name].dataType.typeName() in {"float", "double"} for name in used):
            condition = ex.And(condition, convert(predicate))
    return condition


@dataclass(slots=True)
class EqualityDeletes:
    """The equality delete files of a snapshot, and the sequence numbers of its data files by path.

    `unpartitioned_specs` are the ids of the partition specs without columns, whose deletes apply to all data files.
    `register` fills `sequence_numbers`.
    """

    entries: list[ManifestEntry]
    unpartitioned_specs: frozenset[int]
    sequence_numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Table, snapshot: Snapshot) -> EqualityDeletes:
        """Collect the equality delete files of a snapshot; raise `SourceError` if any deletes by a nested field."""
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
                    cause=f"rows are deleted by the values of a nested field, whose id is {field_id}",
                    hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
                )
        return cls(entries, frozenset(spec_id for spec_id, spec in table.specs().items() if spec.is_unpartitioned()))

    def register(self, entry: ManifestEntry) -> bool:
        """Record the sequence number of a data file; return False for equality deletes, which pyiceberg rejects."""
        from pyiceberg.manifest import DataFileContent

        if entry.data_file.content == DataFileContent.DATA:
            self.sequence_numbers[entry.data_file.file_path] = entry.sequence_number or 0
        return bool(entry.data_file.content != DataFileContent.EQUALITY_DELETES)

    def applicable_to(self, file: DataFile) -> tuple[DataFile, ...]:
        """Return the later delete files that apply to a data file: those of its partition, or without a partition."""
        number, deletes = self.sequence_numbers[file.file_path], []
        for entry in self.entries:
            delete = entry.data_file
            is_same_partition = delete.spec_id == file.spec_id and delete.partition == file.partition
            applies = is_same_partition or delete.spec_id in self.unpartitioned_specs
            if applies and (entry.sequence_number or 0) > number:
                deletes.append(delete)
        return tuple(deletes)


def with_delete_keys(schema: Schema, metadata: TableMetadata, deletes: Sequence[DataFile]) -> Schema:
    """Return a schema extended by those key columns of the delete files that it lacks."""
    from pyiceberg.schema import Schema

    ids = sorted({field_id for delete in deletes for field_id in delete.equality_ids or ()})
    present = {field.field_id for field in schema.fields}
    return Schema(*schema.fields, *_key_fields(metadata, [field_id for field_id in ids if field_id not in present]))


class _DeletedKeys:
    """The keys of deleted rows, read from the equality delete files that apply to some data files."""

    def __init__(self, metadata: TableMetadata, io: FileIO, deletes: Sequence[DataFile]) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.schema import Schema
        from pyiceberg.table import FileScanTask

        by_columns: dict[tuple[int, ...], list[DataFile]] = defaultdict(list)
        for delete in deletes:
            by_columns[tuple(delete.equality_ids or ())].append(delete)
        self._keys = [  # for each combination of key columns: the field ids, and a table of the deleted keys
            (
                ids,
                ArrowScan(metadata, io, Schema(*_key_fields(metadata, ids)), AlwaysTrue())
                .to_table([FileScanTask(file) for file in files])
                .rename_columns([str(field_id) for field_id in ids]),
            )
            for ids, files in by_columns.items()
        ]

    def apply(self, batch: pa.RecordBatch, names: Mapping[int, str]) -> pa.RecordBatch:
        """Return the rows of a batch that are not deleted; `names` are the names of its columns by field id."""
        import pyarrow.compute as pc

        for ids, keys in self._keys:
            columns = [batch.column(names[field_id]) for field_id in ids]
            batch = batch.filter(pc.invert(_are_among(columns, [keys[str(field_id)] for field_id in ids])))
        return batch


def _are_among(columns: Sequence[pa.Array], keys: Sequence[pa.ChunkedArray]) -> pa.Array:
    """Return for each row whether its values are among the keys; null equals null.

    The columns are combined step by step into a code: equal codes mean equal values in all columns so far. For each
    column, the previous code and the index of the value among the distinct values of the key column form a pair. The
    next code is the index of this pair among the distinct pairs of the keys (null if it is not among them), so no
    number exceeds the square of the number of keys.
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
    """Return columns of these field ids under reserved names, as another column may have their former names by now."""
    from pyiceberg.types import NestedField

    fields = [_column(metadata, field_id) for field_id in ids]
    return [
        NestedField(field.field_id, f"{_KEY_COLUMN_PREFIX}{field.field_id}", field.field_type, required=False)
        for field in fields
        if field
    ]


def _column(metadata: TableMetadata, field_id: int) -> Any:
    """Return the latest definition of a column; None for a nested field."""
    schemas = [metadata.schema(), *sorted(metadata.schemas, key=lambda schema: -schema.schema_id)]
    return next((field for schema in schemas for field in schema.fields if field.field_id == field_id), None)
