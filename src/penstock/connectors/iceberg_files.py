"""Files of Iceberg tables, read by pyiceberg in Spark's tasks with deletes applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.iceberg_deletes import DeletedKeys, EqualityDeletes, names_by_id, with_delete_keys
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
    """A data file of a snapshot.

    Parameters
    ----------
    task
        pyiceberg's task to read the file, with its positional deletes.
    deletes
        The equality delete files that apply to the file.
    """

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

    Raises
    ------
    SourceError
        If rows are deleted in an unsupported way.
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
    """Files of a snapshot that Spark's Parquet reader cannot read.

    Parameters
    ----------
    table
        The table.
    files
        The files.
    schema
        The columns as Spark's schema.
    columns
        The columns as Iceberg's schema.
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
        sizes = [file.task.file.file_size_in_bytes + OPEN_COST for file in self._files]
        tasks = max(1, min(len(sizes), -(-sum(sizes) // context.data_volume_per_task), context.parallelism))
        return [[self._files[index] for index in group] for group in evenly(sizes, tasks)]

    def split_size(self, split: Any) -> int:
        """Return the bytes of a group."""
        return sum(file.task.file.file_size_in_bytes for file in split)

    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group of files that are not deleted."""
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        schema = arrow_schema(self._schema, columns)
        projected = self._columns.select(*columns)
        io = load_file_io(self._properties, self._location)
        by_deletes: dict[tuple[DataFile, ...], list[FileScanTask]] = {}
        for file in split:
            by_deletes.setdefault(file.deletes, []).append(file.task)
        for deletes, tasks in by_deletes.items():
            keys = DeletedKeys(self._metadata, io, deletes)
            read = with_delete_keys(projected, self._metadata, deletes)
            names = names_by_id(read)
            for batch in ArrowScan(self._metadata, io, read, AlwaysTrue()).to_record_batches(tasks):
                rows = pa.Table.from_batches([keys.apply(batch, names)])
                yield from rows.select(list(columns)).cast(schema).to_batches()


def spark_schema(table: Table, snapshot_id: int | None) -> StructType:
    """Return the columns of a snapshot as Spark's schema; None for the current columns."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema

    arrow = schema_to_pyarrow(schema_of(table, snapshot_id))
    plain = pa.schema([pa.field(field.name, field.type, field.nullable) for field in arrow])
    schema: StructType = from_arrow_schema(plain)
    return schema


def schema_of(table: Table, snapshot_id: int | None) -> Schema:
    """Return the columns of a snapshot as Iceberg's schema: the table's columns may have changed since."""
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def condition_of(predicates: Sequence[Predicate], schema: StructType) -> BooleanExpression:
    """Return pyiceberg's filter for predicates; without those on floats, as it orders NaN differently from Spark."""
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
