"""Iceberg tables, read and written by their metadata (``pyiceberg``); the rows themselves go through Spark.

A scan whose files are plain parquet is Spark's own. One with deleted rows, or with files of an older schema, is read
by pyiceberg in Spark's tasks.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.arguments import check_table, check_type
from penstock.commit import recover_target
from penstock.connectors.base import (
    DataFrameScanProvider,
    NothingToWrite,
    ScanContext,
    Sink,
    SinkJob,
    checked_parallelism,
)
from penstock.connectors.extras import address_of, without_secrets
from penstock.connectors.iceberg_commit import (
    PreparedIceberg,
    catalog_of,
    has_token,
    last_number,
    located,
    place_of,
    table_of,
)
from penstock.connectors.split_source import SplitSource, arrow_schema
from penstock.connectors.splits import OPEN_COST, evenly
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.table_schema import as_nullable, check_columns, in_shape_of, quoted
from penstock.connectors.timeouts import answered
from penstock.errors import SinkError, SourceError
from penstock.spark.files import read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.predicates import Predicate

log = logging.getLogger("penstock.sources")
MODES = ("append", "overwrite")
_CATALOG = 'as in {"type": "rest", "uri": "http://host:8181"}'


@dataclass(frozen=True)
class IcebergSource(DataFrameScanProvider):
    """An Iceberg table, as one of its snapshots.

    Parameters
    ----------
    table
        Its name, with its namespace.
    catalog
        The properties of the catalogue, as ``pyiceberg.catalog.load_catalog`` takes them.
    snapshot_id
        The snapshot, with the columns it was made with; if None, the current one when the plan is made.
    parallelism
        The number of tasks, instead of what the files suggest.
    """

    table: str
    catalog: Mapping[str, str] = field(repr=False)
    snapshot_id: int | None = None
    parallelism: int | None = None

    def __post_init__(self) -> None:
        check_table(self.table, "IcebergSource")
        check_type(self.catalog, Mapping, f"the catalog of table {self.table}", "a mapping of its properties", _CATALOG)
        check_type(self.snapshot_id, (int, type(None)), "snapshot_id", "the number of a snapshot")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"table {self.table}")
        object.__setattr__(self, "catalog", located(self.catalog))
        if self.snapshot_id is None:
            snapshot = _load(self.table, self.catalog, SourceError).current_snapshot()
            object.__setattr__(self, "snapshot_id", None if snapshot is None else snapshot.snapshot_id)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows of the snapshot."""
        return self.produce_data_frame(spark, ScanContext(spark.sparkContext.defaultParallelism, 1 << 30))

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return the files whose statistics leave it open that rows matter."""
        table = _load(self.table, self.catalog, SourceError)
        schema = _spark_schema(table, self.snapshot_id)
        if self.snapshot_id is None:
            return spark.createDataFrame([], schema)
        scan = table.scan(row_filter=_expression(context.predicates, schema), snapshot_id=self.snapshot_id)
        try:
            tasks = answered(f"table {self.table}", "asking for its files", lambda: list(scan.plan_files()))
        except ValueError as error:  # rows deleted by their values, which pyiceberg cannot leave out
            raise SourceError(
                f"table {self.table} cannot be read",
                cause=str(error),
                hint="rewrite its files with their deletes applied, as Iceberg's procedure rewrite_data_files does",
            ) from error
        if not tasks:
            return spark.createDataFrame([], schema)
        plain = all(not task.delete_files and str(task.file.file_format).lower().endswith("parquet") for task in tasks)
        # Spark finds columns by name; a mapping that renames none is there where files were added.
        by_name = table.name_mapping() in (None, table.schema().name_mapping)
        if plain and by_name and len(table.metadata.schemas) == 1:
            return read_parquet(spark, schema, [task.file.file_path for task in tasks])
        columns = _schema_of(table, self.snapshot_id)
        return _IcebergTasks(table, tasks, schema, columns).produce_data_frame(spark, context)


class _IcebergTasks(SplitSource):
    """Files that pyiceberg reads, with their deleted rows left out."""

    def __init__(self, table: Table, tasks: Sequence[FileScanTask], schema: StructType, columns: Schema) -> None:
        self._metadata = table.metadata
        self._properties = dict(table.io.properties)
        self._location = table.metadata_location
        self._tasks = list(tasks)
        self._schema = schema
        self._columns = columns

    @property
    def schema(self) -> StructType:
        return self._schema

    def enumerate_splits(self, context: ScanContext) -> Sequence[Any]:
        sizes = [task.file.file_size_in_bytes + OPEN_COST for task in self._tasks]
        wanted = max(1, min(len(sizes), -(-sum(sizes) // context.data_volume_per_task), context.parallelism))
        return [[self._tasks[place] for place in group] for group in evenly(sizes, wanted)]

    def split_size(self, split: Any) -> int:
        return sum(task.file.file_size_in_bytes for task in split)

    def read_split(self, split: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io import load_file_io
        from pyiceberg.io.pyarrow import ArrowScan

        wanted = arrow_schema(self._schema, columns)
        projected = self._columns.select(*columns)
        io = load_file_io(self._properties, self._location)
        scan = ArrowScan(self._metadata, io, projected, AlwaysTrue())
        for batch in scan.to_record_batches(split):
            table = pa.Table.from_batches([batch]).select(list(columns)).cast(wanted)
            yield from table.to_batches()


@dataclass(frozen=True)
class IcebergSink(Sink):
    """An Iceberg table; what a job writes appears in one commit.

    Parameters
    ----------
    table
        Its name, with its namespace; made with the first commit.
    catalog
        The properties of the catalogue, as ``pyiceberg.catalog.load_catalog`` takes them.
    mode
        ``append`` or ``overwrite``.
    parallelism
        The number of tasks that write; if None, the tasks that make the rows.
    token
        A name that you give to these rows, such as the day of a daily load. The properties of the table's snapshots
        keep it. If a snapshot that still exists has it, the job writes nothing here. So a job whose driver died can run
        again, and the table has the rows once.
    """

    table: str
    catalog: Mapping[str, str] = field(repr=False)
    mode: str = "append"
    parallelism: int | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        check_table(self.table, "IcebergSink")
        check_type(self.catalog, Mapping, f"the catalog of table {self.table}", "a mapping of its properties", _CATALOG)
        if self.mode not in MODES:
            raise SinkError(f"mode {self.mode!r} is not known", hint=f"give one of {', '.join(MODES)}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"sink {self.table}")
        object.__setattr__(self, "catalog", located(self.catalog))

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    @property
    def place(self) -> str:
        """The table of its catalogue."""
        return f"{self.table} of {place_of(self.catalog)}"

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of the catalogue."""
        return {address_of(place_of(self.catalog), self.catalog.get("warehouse")): dict(self.catalog)}

    def recover(self, access: Access) -> None:
        """Complete or take back what a dead process has left half-way."""
        catalog = catalog_of(self.catalog, SinkError)
        table = table_of(catalog, self.table)
        root = self._root(catalog) if table is None else table.location()
        if root is not None:
            recover_target(access, Folder(access.bridge, root))

    def _root(self, catalog: Catalog) -> str | None:
        """Return the folder of a new table; None where only the catalogue could tell, once the table is made."""
        warehouse = str(catalog.properties.get("warehouse", "")).rstrip("/")
        if warehouse.startswith("/") or ":" in warehouse:
            return f"{warehouse}/{self.table.replace('.', '/')}"
        return None

    def open(self, spark: SparkSession) -> SinkJob:
        """Reach the catalogue, and look at the table if there is one, and whether it has the job's token."""
        catalog = catalog_of(self.catalog, SinkError)
        found = table_of(catalog, self.table)
        if found is not None:
            if self.token is not None and has_token(found, self.token):
                log.warning("%s holds %s already, nothing is written", self.table, self.token)
                return NothingToWrite(self.token)
            if not all(str(one.transform) == "identity" for one in found.spec().fields):
                raise SinkError(
                    f"table {self.table} is partitioned by {found.spec()}, which is not supported",
                    hint="only plain columns can be partition columns of a table written here",
                )
            root = found.location()
            by = [found.schema().find_column_name(one.source_id) or "" for one in found.spec().fields]
            # The columns stay in the files; copies of them make a folder, and so files, of one value each.
            folders = [f"penstock_{place}" for place in range(len(by))]
            columns = _spark_schema(found, None)
            return _IcebergSinkJob(spark, self, root, StagedFiles(spark, f"{root}/data", folders), by, columns)
        new_root = self._root(catalog)
        if new_root is None:
            raise SinkError(
                f"there is no table {self.table}, and where a new one is to lie is not known",
                cause=f"the warehouse is {catalog.properties.get('warehouse')!r}, which is no path",
                hint="make the table first, or give the catalogue a warehouse that is a URI",
            )
        return _IcebergSinkJob(spark, self, new_root, StagedFiles(spark, f"{new_root}/data", ()), [], None)


class _IcebergSinkJob(SinkJob):
    """Stages files, and adds them to the table.

    Parameters
    ----------
    location
        The table's folder, as the catalogue knows it.
    columns
        The columns of the table, None of a new one.
    """

    def __init__(
        self,
        spark: SparkSession,
        sink: IcebergSink,
        location: str,
        staged: StagedFiles,
        partition_by: Sequence[str],
        columns: StructType | None,
    ) -> None:
        self._sink = sink
        self._columns = columns
        self._is_case_sensitive = str(spark.conf.get("spark.sql.caseSensitive", "false")) == "true"
        self._location = location
        self._staged = staged
        self._partition_by = partition_by
        self._schema: StructType | None = None

    def check(self, schema: StructType) -> None:
        if self._columns is not None:
            check_columns(schema, self._columns, self._where, case_sensitive=self._is_case_sensitive)

    @property
    def _where(self) -> str:
        return f"table {self._sink.table}"

    def write(self, df: DataFrame) -> None:
        self.check(df.schema)
        if self._columns is not None:
            df = in_shape_of(df, self._columns, self._where, case_sensitive=self._is_case_sensitive)
        self._schema = as_nullable(df.schema)
        for folder, column in zip(self._staged.partition_by, self._partition_by, strict=True):
            df = df.withColumn(folder, df[quoted(column)])
        self._staged.write(df)

    def prepare(self) -> Prepared:
        """Look which files there are; they lie in the table's folder, and no snapshot names them."""
        assert self._schema is not None
        paths = tuple(f"{self._staged.root}/{one.path}" for one in self._staged.files() if one.rows)
        root = str(self._staged.child("").parent)
        table = table_of(catalog_of(self._sink.catalog, SinkError), self._sink.table)
        return PreparedIceberg(
            self._sink.table,
            root,
            self._location,
            self._sink.mode,
            self._schema.json(),
            self._staged.folder,
            paths,
            uuid.uuid4().hex,
            place_of(self._sink.catalog),
            self._sink.token,
            without_secrets(self._sink.catalog),
            last_number(table),
        )

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of the catalogue."""
        return self._sink.secrets

    def abort(self) -> None:
        self._staged.delete()


def _load(table: str, properties: Mapping[str, str], error: type[SourceError | SinkError]) -> Table:
    from pyiceberg.exceptions import NoSuchTableError

    catalog = catalog_of(properties, error)
    try:
        return answered(f"catalogue {catalog.name}", f"asking for table {table}", lambda: catalog.load_table(table))
    except NoSuchTableError as problem:
        raise error(f"there is no Iceberg table {table}", hint="check the name and its namespace") from problem


def _spark_schema(table: Table, snapshot_id: int | None) -> StructType:
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyspark.sql.pandas.types import from_arrow_schema

    arrow = schema_to_pyarrow(_schema_of(table, snapshot_id))
    plain = pa.schema([pa.field(one.name, one.type, one.nullable) for one in arrow])
    schema: StructType = from_arrow_schema(plain)
    return schema


def _schema_of(table: Table, snapshot_id: int | None) -> Schema:
    """Return the columns as they were when a snapshot was made: a table may have changed since."""
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.schema_id is None:
        return table.schema()
    return table.schemas()[snapshot.schema_id]


def _expression(predicates: Sequence[Predicate], schema: StructType) -> BooleanExpression:
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
