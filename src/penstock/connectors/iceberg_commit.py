"""What a job has ready for an Iceberg table: files in its folder, which one snapshot names."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Prepared
from penstock.commit.names import STAGED_ROWS, check_within
from penstock.connectors.extras import absolute, address_of, given_for, needs, with_secrets
from penstock.connectors.iceberg_partitions import IcebergPartitions, entry_of
from penstock.connectors.split_source import arrow_schema
from penstock.connectors.timeouts import answered, timeout_of_attempt
from penstock.errors import CommitError, CommitUnknownError, SinkError, SourceError, SourceTimeoutError
from penstock.masking import mask
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles

    from penstock.commit import Access
    from penstock.connectors.staged_files import StagedFiles

_RECEIPT, _TOKEN = "penstock.receipt", "penstock.token"
_NAMES = "schema.name-mapping.default"
_RETRIES = "commit.retry.num-retries"
PAUSES = tuple(0.1 * 2**number for number in range(7))
"""Seconds before a snapshot that came too late is tried again."""
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)(?!/|:memory:|file:)(.+)")


@dataclass(frozen=True)
class PreparedIceberg(Prepared):
    """Files of an Iceberg table that no snapshot names yet.

    Parameters
    ----------
    table
        The table's name.
    root
        Its folder, as Spark knows it.
    location
        Its folder, as the catalogue shall know it if the table is new.
    mode
        ``append`` or ``overwrite``.
    schema
        What was written, as Spark's JSON.
    staging
        The folder of the files.
    files
        The paths of those with rows.
    receipt
        Tells the job's snapshot from others.
    reached_by
        The address of the catalogue, without secrets.
    token
        The name of what is written, if it has one.
    catalog
        The properties of the catalogue, but for secrets.
    seen
        The sequence number of the table's last snapshot when the job was about to commit, 0 of a new table; None of a
        table of format 1, whose snapshots have no numbers.
    partitions
        The values of the partition of each file, as the names of its folders tell them; None where pyiceberg finds the
        partitions.
    spec
        The number of the partition spec that they are values of.
    """

    kind: ClassVar[str] = "iceberg"
    is_reversible: ClassVar[bool] = False
    may_land_late: ClassVar[bool] = True

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
        """The address of the catalogue, and its warehouse."""
        return address_of(self.reached_by, dict(self.catalog).get("warehouse"))

    @property
    def folder(self) -> str:
        """The table's folder."""
        return self.root

    def check_names(self) -> None:
        """Refuse a staging folder outside the table, and files outside the staging folder."""
        check_within(self.staging, self.root, STAGED_ROWS)
        for file in self.files:
            check_within(file, self.staging)

    def commit(self, access: Access) -> None:
        """Add a snapshot; a table that is new is made with it.

        pyiceberg would try again by itself if another snapshot came first, and not ask whether that one has the token.
        Whether the job's snapshot is there is asked of the metadata that is committed onto: of two commits onto one
        snapshot the catalogue takes one, so that a commit that lands late is not made again.
        """
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        for pause in (*PAUSES, None):
            catalog = self.connect(access)
            table = table_of(catalog, self.table)
            if self.is_in(table):
                return
            try:
                self._add_snapshot(catalog, table)
            except (CommitFailedException, TableAlreadyExistsError):
                if pause is None:
                    raise
                time.sleep(pause)
            else:
                return

    def _add_snapshot(self, catalog: Catalog, table: Table | None) -> None:
        if table is None:
            self._make_table(catalog)
            return
        self._check_partitions(table)
        transaction = tried_once(table).transaction()
        self._fill(transaction, table, has_rows=table.current_snapshot() is not None)
        self._send(transaction)

    def _make_table(self, catalog: Catalog) -> None:
        from pyspark.sql.types import StructType

        catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
        schema = arrow_schema(StructType.fromJson(json.loads(self.schema)))
        making = catalog.create_table_transaction(self.table, schema, location=self.location)
        self._fill(making, None, has_rows=False)
        self._send(making)

    def _send(self, transaction: Transaction) -> None:
        """Ask the catalogue for the commit; nothing before this is seen by anybody.

        Raises
        ------
        CommitUnknownError
            If it neither says that it has committed nor refuses: a gateway may have given up waiting for it.
        """
        from pyiceberg import exceptions as refusals

        try:
            transaction.commit_transaction()
        except (
            refusals.CommitFailedException,
            refusals.TableAlreadyExistsError,
            refusals.NoSuchTableError,
            refusals.NoSuchNamespaceError,
            refusals.ValidationException,
            refusals.BadRequestError,
            refusals.UnauthorizedError,
            refusals.ForbiddenError,
            refusals.TooManyRequestsError,
        ):
            raise
        except Exception as error:
            raise CommitUnknownError.of(self.target, error) from error

    def _check_partitions(self, table: Table) -> None:
        if self.spec is not None and table.spec().spec_id != self.spec:
            raise SinkError(
                f"the partitions of table {self.table} have changed while the job ran", hint="run the job again"
            )

    def _fill(self, transaction: Transaction, table: Table | None, *, has_rows: bool) -> None:
        from pyiceberg.expressions import AlwaysTrue

        told = self._told()
        if self.mode == "overwrite" and has_rows:
            transaction.delete(AlwaysTrue(), snapshot_properties=told)
        if not self.files:  # there may be no snapshot to tell
            transaction.set_properties({f"{key}.without-rows": value for key, value in told.items()})
        elif table is None or self.partitions is None:
            transaction.add_files(list(self.files), snapshot_properties=told)
        else:
            self._name_columns(transaction, table)
            with transaction.update_snapshot(snapshot_properties=told).fast_append() as added:
                self._append(added, table)

    def _told(self) -> dict[str, str]:
        """Return what the snapshot tells of the job."""
        return {_RECEIPT: self.receipt, **({} if self.token is None else {_TOKEN: self.token})}

    def _name_columns(self, transaction: Transaction, table: Table) -> None:
        """Let readers find columns by their names, as the files have no numbers of columns."""
        if table.name_mapping() is None:
            transaction.set_properties({_NAMES: table.schema().name_mapping.model_dump_json()})

    def _append(self, added: _FastAppendFiles | _OverwriteFiles, table: Table) -> None:
        """Add the files with the partitions that their folders tell."""
        partitions = IcebergPartitions.of(table)
        for path, texts in zip(self.files, self.partitions or [()] * len(self.files), strict=True):
            added.append_data_file(entry_of(table, path, partitions.record(texts)))

    def is_committed(self, access: Access) -> bool:
        """Whether a snapshot has the job's receipt, or its token.

        Raises
        ------
        CommitError
            If that cannot be told, as snapshots have expired since and the table names none of the files.
        """
        return self.is_in(table_of(self.connect(access), self.table))

    def is_in(self, table: Table | None) -> bool:
        """Whether the table has the job's snapshot, by the metadata that was read; see `is_committed`."""
        if table is None:
            return False
        if _tells(table, _RECEIPT, self.receipt) or (self.token is not None and has_token(table, self.token)):
            return True
        if self.seen is not None and _keeps_all_since(table, self.seen):
            return False
        if self._is_named_by(table):
            return True
        if self.seen is None:
            return False
        raise CommitError.forgotten(self.target, "snapshots", self.staging)

    def _is_named_by(self, table: Table) -> bool:
        """Whether the current snapshot has a file of the job."""
        current, mine = table.current_snapshot(), set(self.files)
        manifests = [] if current is None else current.manifests(table.io)
        return any(
            entry.data_file.file_path in mine
            for manifest in manifests
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        )

    def undo(self, access: Access) -> None:
        """Remove the files; no snapshot names them."""
        Folder(access.bridge, self.staging).delete()

    def connect(self, access: Access) -> Catalog:
        """Connect to the catalogue."""
        given = given_for(access, self.address, self.reached_by)
        return catalog_of(with_secrets(self.catalog, given), SinkError)


def files_in_snapshot(staged: StagedFiles) -> tuple[tuple[str, ...], tuple[tuple[str | None, ...], ...] | None]:
    """Return the files with rows that were written, and the values of their partitions, as records have both."""
    files, folders = [one for one in staged.files() if one.rows], staged.partition_by
    partitions = tuple(tuple(one.partition[folder] for folder in folders) for one in files) if folders else None
    return tuple(f"{staged.root}/{one.path}" for one in files), partitions


def tried_once(table: Table) -> Table:
    """Return a table whose commits pyiceberg does not try again by itself; only here, not in the catalogue."""
    once = {**table.metadata.properties, _RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})
    return table


def located(catalog: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalogue so that they mean the same in every working directory."""
    found = dict(catalog)
    uri, warehouse = str(found.get("uri", "")), str(found.get("warehouse", ""))
    sqlite = _SQLITE.fullmatch(uri)
    if sqlite is not None:
        found["uri"] = sqlite[1] + absolute(sqlite[2])
    if warehouse and "://" in uri and not uri.startswith(("http:", "https:", "thrift:")):  # a SQL catalogue
        found["warehouse"] = absolute(warehouse)
    return found


def place_of(catalog: Mapping[str, str]) -> str:
    """Return where a catalogue is, without secrets."""
    return mask(catalog.get("uri") or catalog.get("name", "default"))


def table_of(catalog: Catalog, name: str) -> Table | None:
    """Return a table, None if there is none."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return answered(f"catalogue {catalog.name}", f"asking for table {name}", lambda: catalog.load_table(name))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def has_token(table: Table, token: str) -> bool:
    """Whether a snapshot that is kept tells of a token."""
    return _tells(table, _TOKEN, token)


def _tells(table: Table, key: str, value: str) -> bool:
    if table.properties.get(f"{key}.without-rows") == value:
        return True
    told = (snapshot.summary for snapshot in table.metadata.snapshots)
    return any(summary is not None and summary.additional_properties.get(key) == value for summary in told)


def last_number(table: Table | None) -> int | None:
    """Return the sequence number of a table's last snapshot, None where snapshots have no numbers."""
    if table is None:
        return 0
    return None if table.metadata.format_version == 1 else table.metadata.last_sequence_number


def _keeps_all_since(table: Table, seen: int) -> bool:
    """Whether the table still knows every snapshot that came after one."""
    last = last_number(table)
    if last is None:
        return False
    first = seen + 1 if last >= seen else 1  # it was made anew since
    kept = {snapshot.sequence_number for snapshot in table.metadata.snapshots}
    return kept.issuperset(range(first, last + 1))


def catalog_of(properties: Mapping[str, str], error: type[SourceError | SinkError]) -> Catalog:
    """Connect to a catalogue.

    Raises
    ------
    SinkError, SourceError
        As `error` says, if it cannot be reached.
    """
    needs("pyiceberg", "iceberg", error)
    from pyiceberg.catalog import load_catalog

    name, properties = properties.get("name", "default"), {k: v for k, v in properties.items() if k != "name"}

    def load() -> Catalog:
        if error is not SourceError:  # a commit must not be given up, as it may have been made
            return load_catalog(name, **properties)
        from penstock.connectors.iceberg_rest import rest_catalog

        bounded = _bounded(properties)
        return rest_catalog(name, bounded) or load_catalog(name, **bounded)

    try:
        return answered(f"catalogue {name}", "connecting to it", load)
    except SourceTimeoutError:
        raise
    except Exception as problem:
        raise error(
            "the Iceberg catalogue cannot be reached", cause=str(problem), hint="check its properties"
        ) from problem


def _bounded(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a catalogue whose store is not waited for without end; what the user gave wins."""
    seconds = f"{timeout_of_attempt():g}"
    return {"s3.connect-timeout": seconds, "s3.request-timeout": seconds, **properties}
