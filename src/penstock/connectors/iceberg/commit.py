"""Commit records of an Iceberg table: staged files that a new snapshot adds to the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from penstock.base.masking import mask
from penstock.commit.names import STAGED_FOLDER, check_within
from penstock.connectors.core.extras import absolute_path, client_key, require_module, secrets_for, with_secrets
from penstock.connectors.core.split_source import arrow_schema
from penstock.connectors.core.timeouts import attempt_timeout, call_within_timeout
from penstock.connectors.iceberg.files import IcebergFile, files_of, spark_schema
from penstock.connectors.iceberg.partitions import IcebergPartitions, data_file_of
from penstock.connectors.tables.commit import PreparedTableFiles
from penstock.errors import CommitError, CommitUnknownError, SinkError, SourceError, SourceTimeoutError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
    from pyspark.sql.types import StructType

    from penstock.commit import Access
    from penstock.connectors.tables.table_files import StagedFiles

_RECEIPT, _TOKEN = "penstock.receipt", "penstock.token"  # properties of snapshots
_NAME_MAPPING = "schema.name-mapping.default"
_RETRIES = "commit.retry.num-retries"
_SQLITE_URI = re.compile(r"(sqlite(?:\+\w+)?:///)(?!/|:memory:|file:)(.+)")  # the second group is a relative path


@dataclass(frozen=True)
class PreparedIceberg(PreparedTableFiles["Table"]):
    """Commit record of files that are not in a snapshot of an Iceberg table yet.

    `root` is the table's folder, as Spark addresses it; `location` is the folder of a new table, as the catalog
    addresses it. `files` are the paths of the files that have rows. `receipt` identifies the job's snapshot.
    `reached_by` is the address of the catalog (see `catalog_address`), and `catalog` its properties without secrets.
    `seen` is the sequence number of the table's last snapshot when the job prepared its commit, 0 for a new
    table; None for format version 1, which has no sequence numbers. `partitions` are the partition values of each file,
    as strings from its folder names; None without partitions. `spec` is the partition spec's id; None for a new table.
    """

    kind: ClassVar[str] = "iceberg"
    retry_pauses: ClassVar[tuple[float, ...]] = tuple(0.1 * 2**number for number in range(7))

    table: str
    root: str
    location: str
    mode: str
    schema: str
    staging: str
    files: tuple[str, ...]
    receipt: str
    reached_by: str
    token: str | None = None
    catalog: tuple[tuple[str, str], ...] = ()
    seen: int | None = None
    partitions: tuple[tuple[str | None, ...], ...] | None = None
    spec: int | None = None

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    @property
    def address(self) -> str:
        """The key of the catalog in `Access.secrets`: its address and its warehouse."""
        return client_key(self.reached_by, dict(self.catalog).get("warehouse"))

    def check_names(self) -> None:
        """Reject a staging folder outside the table, and files outside the staging folder."""
        check_within(self.staging, self.root, STAGED_FOLDER)
        for file in self.files:
            check_within(file, self.staging)

    def commit(self, access: Access) -> None:
        """Add a snapshot, and create the table if it does not exist.

        pyiceberg's retries are off: they would not check whether a concurrent snapshot has the token. Instead, every
        attempt first loads the metadata, and looks for the receipt or token. If an earlier attempt, whose outcome is
        unknown, succeeds after this check, the catalog rejects the new attempt: its base snapshot is no longer current.
        """
        self.commit_onto_latest(access, partial(self.commit_onto, access))

    def commit_onto(self, access: Access, table: Table | None) -> None:
        """Add a snapshot after the current snapshot of `table`; with None, create the table."""
        if table is None:
            catalog = self.connect(access)
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            schema = arrow_schema(self.row_type)
            transaction: Transaction = catalog.create_table_transaction(self.table, schema, location=self.location)
        else:
            self._check_partitions(table)
            transaction = without_retries(table).transaction()
        self._add_files(transaction, table)
        self._commit_transaction(transaction)

    def is_conflict(self, access: Access, error: Exception, table: Table | None) -> bool:  # noqa: ARG002
        """Whether a commit failed because another commit came first."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        return isinstance(error, CommitFailedException | TableAlreadyExistsError)

    def _commit_transaction(self, transaction: Transaction) -> None:
        """Send the commit to the catalog; before this, nothing is visible to readers.

        Raise `CommitUnknownError` if the catalog neither confirms nor rejects the commit, such as after a timeout.
        """
        from pyiceberg import exceptions as rejections

        try:
            transaction.commit_transaction()
        except (
            rejections.CommitFailedException,
            rejections.TableAlreadyExistsError,
            rejections.NoSuchTableError,
            rejections.NoSuchNamespaceError,
            rejections.ValidationException,
            rejections.BadRequestError,
            rejections.UnauthorizedError,
            rejections.ForbiddenError,
            rejections.TooManyRequestsError,
        ):
            raise
        except Exception as error:
            raise CommitUnknownError.of(self.target, error) from error

    def _check_partitions(self, table: Table) -> None:
        if self.spec is not None and table.spec().spec_id != self.spec:
            raise SinkError(
                f"the partition spec of table {self.table} has changed while the job ran", hint="run the job again"
            )

    def _add_files(self, transaction: Transaction, table: Table | None) -> None:
        from pyiceberg.expressions import AlwaysTrue

        properties = self._snapshot_properties()
        if self.mode == "overwrite" and table is not None and table.current_snapshot() is not None:
            transaction.delete(AlwaysTrue(), snapshot_properties=properties)
        if not self.files:  # pyiceberg may add no snapshot, so the table gets the properties
            transaction.set_properties({f"{key}.without-rows": value for key, value in properties.items()})
        elif table is None or self.partitions is None:
            transaction.add_files(list(self.files), snapshot_properties=properties)
        else:
            self._set_name_mapping(transaction, table)
            with transaction.update_snapshot(snapshot_properties=properties).fast_append() as snapshot_update:
                self._append(snapshot_update, table)

    def _snapshot_properties(self) -> dict[str, str]:
        """Return the properties that identify the job in its snapshot."""
        return {_RECEIPT: self.receipt, **({} if self.token is None else {_TOKEN: self.token})}

    def _set_name_mapping(self, transaction: Transaction, table: Table) -> None:
        """Set the property that makes readers match columns by name, as the files have no column ids."""
        if table.name_mapping() is None:
            transaction.set_properties({_NAME_MAPPING: table.schema().name_mapping.model_dump_json()})

    def _append(self, snapshot_update: _FastAppendFiles | _OverwriteFiles, table: Table) -> None:
        """Add the files to a snapshot, with the partition values of their folders."""
        partitions = IcebergPartitions.of(table)
        for path, texts in zip(self.files, self.partitions or [()] * len(self.files), strict=True):
            snapshot_update.append_data_file(data_file_of(table, path, partitions.record(texts)))

    def load_table(self, access: Access) -> Table | None:
        """Return the table with its current metadata."""
        return load_table_if_exists(self.connect(access), self.table)

    def is_in(self, table: Table | None) -> bool:
        """Whether the table has the job's receipt, token or files; raise `CommitError` if that is unknown."""
        if table is None:
            return False
        if _has_property(table, _RECEIPT, self.receipt) or (self.token is not None and has_token(table, self.token)):
            return True
        if self.seen is not None and _has_all_snapshots_since(table, self.seen):
            return False
        # If this job's snapshot has expired, the current snapshot may still have the files of the job.
        current, paths = table.current_snapshot(), set(self.files)
        if any(
            entry.data_file.file_path in paths
            for manifest in ([] if current is None else current.manifests(table.io))
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        ):
            return True
        if self.seen is None:  # expired snapshots cannot be detected
            return False
        raise CommitError.no_evidence(self.target, "snapshots", self.staging)

    def undo(self, access: Access) -> None:
        """Remove the files, which are in no snapshot."""
        HadoopPath(access.bridge, self.staging).delete()

    def connect(self, access: Access) -> Catalog:
        """Connect to the catalog."""
        secrets = secrets_for(access, self.address, self.reached_by)
        return connect_to_catalog(with_secrets(self.catalog, secrets), SinkError)


def list_files(staged: StagedFiles) -> tuple[tuple[str, ...], tuple[tuple[str | None, ...], ...] | None]:
    """Return the staged files that have rows, and their partition values, as `PreparedIceberg` stores them."""
    files, columns = [file for file in staged.files() if file.rows], staged.partition_by
    partitions = tuple(tuple(file.partition[column] for column in columns) for file in files) if columns else None
    return tuple(f"{staged.root}/{file.path}" for file in files), partitions


def without_retries(table: Table) -> Table:
    """Turn off pyiceberg's retries for this table object, but not in the catalog; return the object."""
    properties = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def with_absolute_paths(catalog: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalog, with absolute paths of a SQLite file and of an SQL catalog's warehouse."""
    properties = dict(catalog)
    uri, warehouse = str(properties.get("uri", "")), str(properties.get("warehouse", ""))
    sqlite = _SQLITE_URI.fullmatch(uri)
    if sqlite is not None:
        properties["uri"] = sqlite[1] + absolute_path(sqlite[2])
    if warehouse and "://" in uri and not uri.startswith(("http:", "https:", "thrift:")):  # an SQL catalog
        properties["warehouse"] = absolute_path(warehouse)
    return properties


def catalog_address(catalog: Mapping[str, str]) -> str:
    """Return the address of a catalog: its URI without secrets, or its name if it has no URI."""
    return mask(catalog.get("uri") or catalog.get("name", "default"))


def load_table_if_exists(catalog: Catalog, name: str) -> Table | None:
    """Load a table; return None if it does not exist."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return call_within_timeout(
            f"catalog {catalog.name}", f"asking for table {name}", lambda: catalog.load_table(name)
        )
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def has_token(table: Table, token: str) -> bool:
    """Whether a snapshot that has not expired, or the last commit without rows, has a token."""
    return _has_property(table, _TOKEN, token)


def _has_property(table: Table, key: str, value: str) -> bool:
    if table.properties.get(f"{key}.without-rows") == value:
        return True
    summaries = (snapshot.summary for snapshot in table.metadata.snapshots)
    return any(summary is not None and summary.additional_properties.get(key) == value for summary in summaries)


def last_sequence_number(table: Table | None) -> int | None:
    """Return the sequence number of a table's last snapshot: 0 without a table, None in format version 1."""
    if table is None:
        return 0
    return None if table.metadata.format_version == 1 else table.metadata.last_sequence_number


def _has_all_snapshots_since(table: Table, seen: int) -> bool:
    """Whether no snapshot with a sequence number above `seen` has expired."""
    last = last_sequence_number(table)
    if last is None:
        return False
    first = seen + 1 if last >= seen else 1  # if `last` is lower, the table was recreated
    retained = {snapshot.sequence_number for snapshot in table.metadata.snapshots}
    return retained.issuperset(range(first, last + 1))


def connect_to_catalog(properties: Mapping[str, str], error: type[SourceError | SinkError]) -> Catalog:
    """Connect to a catalog, for reading if `error` is `SourceError`; raise an error of this class if that fails."""
    require_module("pyiceberg", "iceberg", error)
    from pyiceberg.catalog import load_catalog

    name, properties = properties.get("name", "default"), {k: v for k, v in properties.items() if k != "name"}

    def load() -> Catalog:
        if error is not SourceError:  # a commit must not time out, as its outcome would be unknown
            return load_catalog(name, **properties)
        from penstock.connectors.iceberg.rest import rest_catalog

        # Timeouts for the object store, unless the user has set them.
        seconds = f"{attempt_timeout():g}"
        with_timeouts = {"s3.connect-timeout": seconds, "s3.request-timeout": seconds, **properties}
        return rest_catalog(name, with_timeouts) or load_catalog(name, **with_timeouts)

    try:
        return call_within_timeout(f"catalog {name}", "connecting to it", load)
    except SourceTimeoutError:
        raise
    except Exception as problem:
        raise error(
            "the Iceberg catalog cannot be reached", cause=str(problem), hint="check its properties"
        ) from problem


def current_files(table: Table, condition: BooleanExpression | None = None) -> list[IcebergFile]:
    """Return the files of the current snapshot that may have rows that meet a condition.

    Raise `SinkError` if a file has deleted rows, or is not Parquet.
    """
    from pyiceberg.expressions import AlwaysTrue

    snapshot = current_snapshot_id(table)
    files = [] if snapshot is None else files_of(table, snapshot, AlwaysTrue() if condition is None else condition)
    if not all(file.is_plain for file in files):
        raise SinkError(
            f"rows of table {'.'.join(table.name())} cannot be replaced",
            cause="it has files with deleted rows, or in other formats than Parquet",
            hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
        )
    return files


def current_snapshot_id(table: Table | None) -> int | None:
    """Return the id of a table's current snapshot; None if the table has no snapshot, or does not exist."""
    snapshot = None if table is None else table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def check_same_columns(table: Table, schema: StructType) -> None:
    """Reject a table whose columns differ from those of the new rows: rewritten files would not have all columns."""
    table_types, row_types = (
        {field.name: field.dataType.simpleString() for field in columns}
        for columns in (spark_schema(table, None), schema)
    )
    if table_types != row_types:
        names = sorted(name for name in {**table_types, **row_types} if table_types.get(name) != row_types.get(name))
        raise SinkError(
            f"the columns of table {'.'.join(table.name())} have changed while the job ran",
            cause=f"these columns are not as the job has written them: {', '.join(names)}",
            hint="run the job again",
        )
