"""Source and sink of Iceberg tables. ``pyiceberg`` handles the metadata, Spark reads and writes the rows.

Spark scans plain Parquet files itself. If rows of a file are deleted, a file is not Parquet, or the columns have
changed, pyiceberg reads all files in Spark's tasks.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.arguments import check_table, check_type
from penstock.commit import recover_target
from penstock.connectors.core.base import (
    DataFrameScanProvider,
    NothingToWrite,
    ScanContext,
    already_written,
    check_positive,
)
from penstock.connectors.core.extras import client_key, without_secrets
from penstock.connectors.core.timeouts import call_within_timeout
from penstock.connectors.iceberg.commit import (
    PreparedIceberg,
    catalog_address,
    connect_to_catalog,
    current_snapshot_id,
    has_token,
    last_sequence_number,
    list_files,
    load_table_if_exists,
    with_absolute_paths,
)
from penstock.connectors.iceberg.files import IcebergFiles, condition_of, files_of, schema_of, spark_schema
from penstock.connectors.iceberg.partitions import IcebergPartitions, identity_columns
from penstock.connectors.iceberg.upsert import IcebergUpsert, PreparedIcebergUpsert, check_upsert
from penstock.connectors.tables.table_files import StagedFiles, TableFilesJob, TableFilesSink
from penstock.errors import SinkError, SourceError
from penstock.spark.io.files import read_parquet
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared
    from penstock.connectors.core.base import SinkJob

log = logging.getLogger("penstock.sources")
_CATALOG = 'as in {"type": "rest", "uri": "http://host:8181"}'


@dataclass(frozen=True)
class IcebergSource(DataFrameScanProvider):
    """A snapshot of an Iceberg table.

    >>> IcebergSource("shop.orders", {"uri": "http://catalog:8181"}, snapshot_id=7).name
    'shop.orders'

    Parameters
    ----------
    table
        The name of the table, with its namespace.
    catalog
        The properties of the catalog, for ``pyiceberg.catalog.load_catalog``.
    snapshot_id
        The id of the snapshot, which is read with its own schema; if None, the current snapshot at planning time.
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
        check_positive(f"table {self.table}", self.parallelism)
        object.__setattr__(self, "catalog", with_absolute_paths(self.catalog))
        if self.snapshot_id is None:
            object.__setattr__(self, "snapshot_id", current_snapshot_id(_load(self.table, self.catalog)))

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    def read(self, spark: SparkSession) -> DataFrame:
        """Return all rows of the snapshot."""
        return self.produce_data_frame(spark, ScanContext(spark.sparkContext.defaultParallelism, 1 << 30))  # 1 GiB

    def produce_data_frame(self, spark: SparkSession, context: ScanContext) -> DataFrame:
        """Return all rows of those files that, by their statistics, may have rows that meet the predicates."""
        table = _load(self.table, self.catalog)
        schema = spark_schema(table, self.snapshot_id)
        if self.snapshot_id is None:
            return spark.createDataFrame([], schema)
        snapshot_id, condition = self.snapshot_id, condition_of(context.predicates, schema)
        request = "asking for its files"
        files = call_within_timeout(f"table {self.table}", request, lambda: files_of(table, snapshot_id, condition))
        if not files:
            return spark.createDataFrame([], schema)
        # Spark matches columns by name. The name mapping that Penstock's commits create renames no column.
        has_same_names = table.name_mapping() in (None, table.schema().name_mapping)
        if has_same_names and len(table.metadata.schemas) == 1 and all(file.is_plain for file in files):
            return read_parquet(spark, schema, [file.path for file in files])
        columns = schema_of(table, self.snapshot_id)
        return IcebergFiles(table, files, schema, columns).produce_data_frame(spark, context)


@dataclass(frozen=True)
class IcebergSink(TableFilesSink):
    """An Iceberg table; a job adds its rows in a single commit.

    >>> IcebergSink("shop.orders", {"uri": "http://catalog:8181"}, mode="upsert", key="id").key
    ('id',)

    Parameters
    ----------
    table
        The name of the table, with its namespace; created by the first commit.
    catalog
        The properties of the catalog, for ``pyiceberg.catalog.load_catalog``.
    mode
        ``append``, ``overwrite`` or ``upsert``, which replaces rows of the table with the same key, and adds others.
    parallelism
        The number of writing tasks; if None, as in `FileSink`.
    token
        An idempotency token for these rows, as in `FileSink`. The summaries of the table's snapshots store it, until
        the snapshots expire.
    key
        The key columns of an ``upsert``. They must not be null, and must be unique among the new rows.
    target_file_size, auto_compaction
        As in `FileSink`; upserts leave the file size to Spark.
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
        self._check_arguments(self.table)
        object.__setattr__(self, "catalog", with_absolute_paths(self.catalog))

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table

    @property
    def location(self) -> str:
        """The table and its catalog."""
        return f"{self.table} of {catalog_address(self.catalog)}"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of the catalog."""
        return {client_key(catalog_address(self.catalog), self.catalog.get("warehouse")): dict(self.catalog)}

    @property
    def partition_columns(self) -> Sequence[str]:
        """The partition columns of the table; empty if any transform is neither identity nor void."""
        table = load_table_if_exists(connect_to_catalog(self.catalog, SinkError), self.table)
        return [] if table is None else identity_columns(table)

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        catalog = connect_to_catalog(self.catalog, SinkError)
        table = load_table_if_exists(catalog, self.table)
        root = self._root(catalog, table)
        if root is not None:
            recover_target(access, HadoopPath(access.bridge, root))

    def _root(self, catalog: Catalog, table: Table | None) -> str | None:
        """Return the table's folder; None if the catalog chooses the folder when it creates the table."""
        if table is not None:
            return table.location()
        warehouse = str(catalog.properties.get("warehouse", "")).rstrip("/")
        if warehouse.startswith("/") or ":" in warehouse:
            return f"{warehouse}/{self.table.replace('.', '/')}"
        return None

    def open(self, spark: SparkSession) -> SinkJob:
        """Check an existing table; return a job that writes nothing if the table already has the token."""
        catalog = connect_to_catalog(self.catalog, SinkError)
        table = load_table_if_exists(catalog, self.table)
        if table is not None:
            if self.token is not None and has_token(table, self.token):
                log.warning("%s already has the rows of token %s, nothing is written", self.table, self.token)
                return NothingToWrite(already_written(self.token))
            if self.mode == "upsert":
                check_upsert(table)
        root = self._root(catalog, table)
        if root is None:
            raise SinkError(
                f"table {self.table} does not exist, and the location of a new table is unknown",
                cause=f"the warehouse is {catalog.properties.get('warehouse')!r}, which is not a path",
                hint="create the table first, or set the warehouse of the catalog to a URI",
            )
        partitions = None if table is None else IcebergPartitions.of(table)
        columns = None if table is None else spark_schema(table, None)
        staged = StagedFiles(spark, f"{root}/data", () if partitions is None else partitions.folders)
        upsert_rows = StagedFiles(spark, str(staged.root.child("")), ())
        return _IcebergSinkJob(spark, self, f"table {self.table}", staged, upsert_rows, columns, root, partitions)


@dataclass(eq=False)
class _IcebergSinkJob(TableFilesJob[IcebergSink]):
    """Write staged files, and add them to the table.

    `_location` is the table's folder, as the catalog addresses it. `_partitions` and `_columns` are None for a new
    table. `_snapshot` is the id of the snapshot from which an upsert was computed; None if there was no snapshot.
    """

    _location: str
    _partitions: IcebergPartitions | None
    _snapshot: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls_python |= self._partitions is not None and self._partitions.calls_python

    def _with_folder_columns(self, df: DataFrame) -> DataFrame:
        return df if self._partitions is None else self._partitions.with_folder_columns(df)

    def _upsert(self, spark: SparkSession, schema: StructType) -> tuple[str, ...]:
        table = load_table_if_exists(connect_to_catalog(self._sink.catalog, SinkError), self._sink.table)
        upsert = IcebergUpsert(spark, self._key(schema), self._upsert_rows.folder, schema, partitions=self._partitions)
        self._snapshot = current_snapshot_id(table)
        return upsert.write(table, self._staged)

    def prepare(self) -> Prepared:
        assert self._schema is not None
        sink, staged = self._sink, self._staged
        files, partitions = list_files(staged)
        record_type = PreparedIcebergUpsert if sink.mode == "upsert" else PreparedIceberg
        return record_type(
            table=sink.table,
            root=str(staged.root.child("").parent),
            location=self._location,
            mode=sink.mode,
            schema=self._schema.json(),
            staging=staged.folder,
            files=files,
            receipt=uuid.uuid4().hex,
            reached_by=catalog_address(sink.catalog),
            token=sink.token,
            catalog=without_secrets(sink.catalog),
            seen=last_sequence_number(load_table_if_exists(connect_to_catalog(sink.catalog, SinkError), sink.table)),
            partitions=partitions,
            spec=None if self._partitions is None else self._partitions.spec_id,
            **self._upsert_fields(self._schema, snapshot=self._snapshot),
        )


def _load(name: str, properties: Mapping[str, str]) -> Table:
    table = load_table_if_exists(connect_to_catalog(properties, SourceError), name)
    if table is None:
        raise SourceError(f"there is no Iceberg table {name}", hint="check the name and its namespace")
    return table
