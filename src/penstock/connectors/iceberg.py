"""Source and sink of Iceberg tables. ``pyiceberg`` handles the metadata, Spark reads and writes the rows.

Spark scans plain Parquet files itself. Files with deleted rows or of an older schema are read by pyiceberg in Spark's
tasks.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from penstock.arguments import check_table, check_type, columns_of
from penstock.commit import recover_target
from penstock.connectors.base import (
    DataFrameScanProvider,
    NothingToWrite,
    ScanContext,
    SinkJob,
    SinkOptions,
    StageReport,
    checked_parallelism,
)
from penstock.connectors.extras import client_key, without_secrets
from penstock.connectors.iceberg_checks import check_upsert, snapshot_of
from penstock.connectors.iceberg_commit import (
    PreparedIceberg,
    catalog_address,
    catalog_of,
    has_token,
    last_sequence_number,
    record_files,
    table_of,
    with_absolute_paths,
)
from penstock.connectors.iceberg_files import IcebergFiles, condition_of, files_of, schema_of, spark_schema
from penstock.connectors.iceberg_partitions import IcebergPartitions, plain_columns
from penstock.connectors.iceberg_upsert import IcebergUpsert, PreparedIcebergUpsert
from penstock.connectors.sink_checks import is_case_sensitive
from penstock.connectors.sized_table import SizedTable
from penstock.connectors.staged_files import StagedFiles
from penstock.connectors.table_schema import as_nullable, check_columns, in_shape_of
from penstock.connectors.timeouts import call_within_timeout
from penstock.connectors.upsert import Key, check_key_matches_mode
from penstock.errors import SinkError, SourceError
from penstock.spark.files import read_parquet
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared

log = logging.getLogger("penstock.sources")
MODES = ("append", "overwrite", "upsert")
_CATALOG = 'as in {"type": "rest", "uri": "http://host:8181"}'


@dataclass(frozen=True)
class IcebergSource(DataFrameScanProvider):
    """A snapshot of an Iceberg table.

    Parameters
    ----------
    table
        The name of the table, with its namespace.
    catalog
        The properties of the catalogue, for ``pyiceberg.catalog.load_catalog``.
    snapshot_id
        The snapshot, which is read with its own schema; if None, the current snapshot at planning time.
    parallelism
        The number of tasks; if None, inferred from the files.
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
        object.__setattr__(self, "catalog", with_absolute_paths(self.catalog))
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
        """Return the rows of the files that remain after skipping by statistics."""
        table = _load(self.table, self.catalog, SourceError)
        schema = spark_schema(table, self.snapshot_id)
        if self.snapshot_id is None:
            return spark.createDataFrame([], schema)
        snapshot_id, condition = self.snapshot_id, condition_of(context.predicates, schema)
        request = "asking for its files"
        files = call_within_timeout(f"table {self.table}", request, lambda: files_of(table, snapshot_id, condition))
        if not files:
            return spark.createDataFrame([], schema)
        # Spark matches columns by name. Adding files creates a name mapping that renames nothing.
        by_name = table.name_mapping() in (None, table.schema().name_mapping)
        if by_name and len(table.metadata.schemas) == 1 and all(file.is_plain for file in files):
            return read_parquet(spark, schema, [file.path for file in files])
        columns = schema_of(table, self.snapshot_id)
        return IcebergFiles(table, files, schema, columns).produce_data_frame(spark, context)


@dataclass(frozen=True)
class IcebergSink(SizedTable):
    """An Iceberg table; a job adds its rows in a single commit.

    Parameters
    ----------
    table
        The name of the table, with its namespace; created by the first commit.
    catalog
        The properties of the catalogue, for ``pyiceberg.catalog.load_catalog``.
    mode
        ``append``, ``overwrite`` or ``upsert``, which replaces rows of the table with the same key, and adds others.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    token
        An idempotency token for these rows, such as the day of a daily load. The summaries of the table's snapshots
        store it. If a snapshot that has not expired has it already, the job writes nothing. So a job whose driver died
        can be repeated, and the table has the rows once.
    key
        The key columns of an ``upsert``. They must not be null, and must be unique among the new rows.
    target_file_size
        The target size of a file on disk, in bytes or as a string such as ``"128 mb"``. If None, the option
        ``sink.target-file-size`` applies if there are partition columns; else each task writes a file. Upserts leave
        the file size to Spark.
    auto_compaction
        Whether files of at most half the target size are merged within their partition before they become visible.
        If None, the option ``sink.auto-compaction`` applies.
    """

    table: str
    catalog: Mapping[str, str] = field(repr=False)
    mode: str = "append"
    parallelism: int | None = None
    token: str | None = None
    key: str | Sequence[str] = ()
    target_file_size: int | str | None = None
    auto_compaction: bool | None = None

    def __post_init__(self) -> None:
        check_table(self.table, "IcebergSink")
        check_type(self.catalog, Mapping, f"the catalog of table {self.table}", "a mapping of its properties", _CATALOG)
        if self.mode not in MODES:
            raise SinkError(f"mode {self.mode!r} is not valid", hint=f"give one of {', '.join(MODES)}")
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"sink {self.table}")
        object.__setattr__(self, "catalog", with_absolute_paths(self.catalog))
        object.__setattr__(self, "key", columns_of(self.key, f"key of sink {self.table}"))
        check_key_matches_mode(self.mode, self.key)
        self._check_file_size()

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    @property
    def location(self) -> str:
        """The table and its catalogue."""
        return f"{self.table} of {catalog_address(self.catalog)}"

    @property
    def adds(self) -> bool:
        """Whether the mode is ``append``."""
        return self.mode == "append"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of the catalogue."""
        return {client_key(catalog_address(self.catalog), self.catalog.get("warehouse")): dict(self.catalog)}

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns of the table; empty if it has partitions by other transforms than identity."""
        table = table_of(catalog_of(self.catalog, SinkError), self.table)
        return [] if table is None else plain_columns(table)

    def file_size(self, options: SinkOptions) -> int | None:
        """Return the target size of a file in bytes, None if the upstream tasks write the files themselves."""
        return None if self.mode == "upsert" else super().file_size(options)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        catalog = catalog_of(self.catalog, SinkError)
        table = table_of(catalog, self.table)
        root = self._root(catalog) if table is None else table.location()
        if root is not None:
            recover_target(access, Folder(access.bridge, root))

    def _root(self, catalog: Catalog) -> str | None:
        """Return the folder of a new table; None if only the catalogue can choose it, when the table is created."""
        warehouse = str(catalog.properties.get("warehouse", "")).rstrip("/")
        if warehouse.startswith("/") or ":" in warehouse:
            return f"{warehouse}/{self.table.replace('.', '/')}"
        return None

    def open(self, spark: SparkSession) -> SinkJob:
        """Check the table if it exists, and whether it has the job's token already."""
        catalog = catalog_of(self.catalog, SinkError)
        table = table_of(catalog, self.table)
        if table is not None:
            if self.token is not None and has_token(table, self.token):
                log.warning("%s holds %s already, nothing is written", self.table, self.token)
                return NothingToWrite(self.token)
            if self.mode == "upsert":
                check_upsert(table)
            root, partitions = table.location(), IcebergPartitions.of(table)
            staged = StagedFiles(spark, f"{root}/data", partitions.folders)
            return _IcebergSinkJob(spark, self, root, staged, partitions, spark_schema(table, None))
        new_root = self._root(catalog)
        if new_root is None:
            raise SinkError(
                f"table {self.table} does not exist, and the location of a new table is unknown",
                cause=f"the warehouse is {catalog.properties.get('warehouse')!r}, which is not a path",
                hint="create the table first, or set the warehouse of the catalogue to a URI",
            )
        return _IcebergSinkJob(spark, self, new_root, StagedFiles(spark, f"{new_root}/data", ()), None, None)


class _IcebergSinkJob(SinkJob):
    """Write staged files, and add them to the table.

    Parameters
    ----------
    location
        The table's folder, as the catalogue addresses it.
    partitions
        The partitioning of the table, None for a new table.
    columns
        The columns of the table, None for a new table.
    """

    def __init__(
        self,
        spark: SparkSession,
        sink: IcebergSink,
        location: str,
        staged: StagedFiles,
        partitions: IcebergPartitions | None,
        columns: StructType | None,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._columns = columns
        self._is_case_sensitive = is_case_sensitive(spark)
        self._location = location
        self._staged = staged
        self._partitions = partitions
        self._rows = StagedFiles(spark, str(staged.child("")), ())
        # An upsert also runs queries over the table's rows.
        self.calls_python = sink.mode == "upsert" or (partitions is not None and partitions.calls_python)
        self._removed: tuple[str, ...] = ()
        self._snapshot: int | None = None
        self._schema: StructType | None = None

    def check(self, schema: StructType) -> None:
        if self._sink.mode == "upsert":
            self._key(self._columns or schema)
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
        if self._sink.mode == "upsert":
            self._upsert(df)
        else:
            self._staged.write(df if self._partitions is None else self._partitions.with_folders(df))

    def _upsert(self, df: DataFrame) -> None:
        """Stage the new rows, and rewrite the files whose rows they replace."""
        assert self._schema is not None
        self._rows.write(df)
        table = table_of(catalog_of(self._sink.catalog, SinkError), self._sink.table)
        upsert = IcebergUpsert(df.sparkSession, self._key(self._schema), self._rows.folder, self._schema)
        self._snapshot = None if table is None else snapshot_of(table)
        self._removed = upsert.write(table, self._partitions, self._staged)

    def _key(self, schema: StructType) -> Key:
        columns = columns_of(self._sink.key, self._sink.table)
        return Key.of(columns, schema, self._where, case_sensitive=self._is_case_sensitive)

    def prepare(self) -> Prepared:
        """Return the record of the staged files, which are in the table's folder and in no snapshot yet."""
        assert self._schema is not None
        sink = self._sink
        files, partitions = record_files(self._staged)
        record = PreparedIceberg(
            sink.table,
            str(self._staged.child("").parent),
            self._location,
            sink.mode,
            self._schema.json(),
            self._staged.folder,
            files,
            uuid.uuid4().hex,
            catalog_address(sink.catalog),
            sink.token,
            without_secrets(sink.catalog),
            last_sequence_number(table_of(catalog_of(sink.catalog, SinkError), sink.table)),
            partitions,
            None if self._partitions is None else self._partitions.spec_id,
        )
        if sink.mode != "upsert":
            return record
        common = {field.name: getattr(record, field.name) for field in fields(record)}
        key = self._key(self._schema).columns
        return PreparedIcebergUpsert(
            **common, key=key, rows=self._rows.folder, removed=self._removed, snapshot=self._snapshot
        )

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of the catalogue."""
        return self._sink.secrets

    def sample_size(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the bytes of its files."""
        return self._staged.sample(df)

    def compact(self, target: int) -> StageReport:
        """Merge small files."""
        return self._staged.compact(self._spark, target)

    def abort(self) -> None:
        self._staged.delete()
        self._rows.delete()


def _load(table: str, properties: Mapping[str, str], error: type[SourceError | SinkError]) -> Table:
    from pyiceberg.exceptions import NoSuchTableError

    catalog = catalog_of(properties, error)
    try:
        return call_within_timeout(
            f"catalogue {catalog.name}", f"asking for table {table}", lambda: catalog.load_table(table)
        )
    except NoSuchTableError as problem:
        raise error(f"there is no Iceberg table {table}", hint="check the name and its namespace") from problem
