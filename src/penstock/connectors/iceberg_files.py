"""Files of an Iceberg table that pyiceberg reads in Spark's tasks, with their deleted rows left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.iceberg_deletes import DeletedKeys, EqualityDeletes, names_of, with_deleted_by
from penstock.connectors.split_source import SplitSource, arrow_schema
from penstock.connectors.splits import OPEN_COST, evenly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql.types import StructType

    from penstock.connectors.base import ScanContext
    from penstock.connectors.predicates import Predicate


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A file of a snapshot.

    Parameters
    ----------
    task
        The file and its rows that are deleted by their places, as pyiceberg knows them.
    deletes
        The files with values that rows are deleted by.
    """

    task: FileScanTask
    deletes: tuple[DataFile, ...] = ()

    @property
    def path(self) -> str:
        """Where it is."""
        return str(self.task.file.file_path)

    @property
    def is_plain(self) -> bool:
        """Whether all of its rows are there, and Spark can read it."""
        is_parquet = str(self.task.file.file_format).lower().endswith("parquet")
        return is_parquet and not self.task.delete_files and not self.deletes


def files_of(table: Table, snapshot_id: int, condition: BooleanExpression) -> list[IcebergFile]:
    """Return the files of a snapshot that may hold rows that matter.

    Raises
    ------
    SourceError
        If rows are deleted in a way that cannot be followed.
    """
    snapshot = table.snapshot_by_id(snapshot_id)
    scan = table.scan(row_filter=condition, snapshot_id=snapshot_id)
    deletes = None if snapshot is None else EqualityDeletes.of(table, snapshot)
    if deletes is None or snapshot is None or not deletes.entries:
        return [IcebergFile(task) for task in scan.plan_files()]
    from pyiceberg.table import ManifestGroupPlanner

    planner = ManifestGroupPlanner(table.metadata, table.io, condition)
    tasks = planner.plan_files(snapshot.manifests(table.io), deletes.notice)
    return [IcebergFile(task, deletes.that_hold_for(task.file)) for task in tasks]


class IcebergFiles(SplitSource):
    """Files that Spark cannot read by itself.

    Parameters
    ----------
    table
        The table.
    files
        The files.
    schema
        The columns as Spark knows them.
    columns
        The columns of the snapshot.
    """

    def __init__(self, table: Table, files: Sequence[IcebergFile], schema: StructType, columns: Schema) -> None:
        self._metadata = table.metadata
        self._properties = dict(table.io.properties)
        self._location = table.metadata_location
        self._files = list(files)
        self._schema = schema
        self._columns = columns

    @property
    def schema(self) -> StructType:
        """The table's columns."""
        return self._schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[Any]:
        """Return groups of files."""
        sizes = [one.task.file.file_size_in_bytes + OPEN_COST for one in self._files]
        wanted = max(1, min(len(sizes), -(-sum(sizes) // context.data_volume_per_task), context.parallelism))
        return [[self._files[place] for place in group] for group in evenly(sizes, wanted)]

    def split_size(self, split: Any) -> int:
        """Return the bytes of a group."""
        return sum(one.task.file.file_size_in_bytes for one in split)

    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return the rows of a group that are not deleted."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        wanted = arrow_schema(self._schema, columns)
        projected = self._columns.select(*columns)
        io = load_file_io(self._properties, self._location)
        by_deletes: dict[tuple[DataFile, ...], list[FileScanTask]] = {}
        for one in split:
            by_deletes.setdefault(one.deletes, []).append(one.task)
        for deletes, tasks in by_deletes.items():
            keys = DeletedKeys(self._metadata, io, deletes)
            read = with_deleted_by(projected, self._metadata, deletes)
            names = names_of(read)
            for batch in ArrowScan(self._metadata, io, read, AlwaysTrue()).to_record_batches(tasks):
                yield from _as_wanted(keys.left(batch, names), columns, wanted)


def _as_wanted(batch: pa.RecordBatch, columns: Sequence[str], wanted: pa.Schema) -> list[pa.RecordBatch]:
    import pyarrow as pa

    found: list[pa.RecordBatch] = pa.Table.from_batches([batch]).select(list(columns)).cast(wanted).to_batches()
    return found


def spark_schema(table: Table, snapshot_id: int | None) -> StructType:
    """Return the columns of a snapshot, as Spark knows them."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema

    arrow = schema_to_pyarrow(schema_of(table, snapshot_id))
    plain = pa.schema([pa.field(one.name, one.type, one.nullable) for one in arrow])
    schema: StructType = from_arrow_schema(plain)
    return schema


def schema_of(table: Table, snapshot_id: int | None) -> Schema:
    """Return the columns as they were when a snapshot was made: a table may have changed since."""
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def condition_of(predicates: Sequence[Predicate], schema: StructType) -> BooleanExpression:
    """Return what pyiceberg may leave files out by; its order of NaN is not Spark's, so floats do not count."""
    from pyiceberg import expressions

    ex: Any = expressions  # its constructors have no types
    compared = {
        "=": ex.EqualTo,
        "<": ex.LessThan,
        "<=": ex.LessThanOrEqual,
        ">": ex.GreaterThan,
        ">=": ex.GreaterThanOrEqual,
        "in": ex.In,
        "is null": ex.IsNull,
        "is not null": ex.NotNull,
    }

    def one(predicate: Predicate) -> Any:
        if predicate.parts:
            connective = ex.And if predicate.operator == "and" else ex.Or
            return connective(*map(one, predicate.parts))
        values = [predicate.values] if predicate.operator == "in" else predicate.values
        return compared[predicate.operator](predicate.column, *values)

    names = set(schema.fieldNames())
    whole: BooleanExpression = ex.AlwaysTrue()
    for predicate in predicates:
        used = set(predicate.columns())
        if used <= names and not any(schema[name].dataType.typeName() in {"float", "double"} for name in used):
            whole = ex.And(whole, one(predicate))
    return whole
