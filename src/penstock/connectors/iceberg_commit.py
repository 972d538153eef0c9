"""What a job has ready for an Iceberg table: files in its folder, which one snapshot names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.commit import Prepared
from penstock.connectors.extras import needs, with_secrets
from penstock.connectors.split_source import arrow_schema
from penstock.connectors.timeouts import answered, timeout_of_attempt
from penstock.errors import SinkError, SourceError, SourceTimeoutError
from penstock.masking import mask
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction

    from penstock.commit import Access

_RECEIPT, _TOKEN = "penstock.receipt", "penstock.token"


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
    """

    kind: ClassVar[str] = "iceberg"
    is_reversible: ClassVar[bool] = False

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

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    @property
    def address(self) -> str:
        """The address of the catalogue."""
        return self.reached_by

    @property
    def folder(self) -> str:
        """The table's folder."""
        return self.root

    def commit(self, access: Access) -> None:
        """Add a snapshot; a table that is new is made with it."""
        catalog = self._catalog(access)
        if self.is_committed(access):
            return
        catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
        if catalog.table_exists(self.table):
            table = catalog.load_table(self.table)
            with table.transaction() as transaction:
                self._fill(transaction, has_rows=table.current_snapshot() is not None)
            return
        from pyspark.sql.types import StructType

        schema = arrow_schema(StructType.fromJson(json.loads(self.schema)))
        making = catalog.create_table_transaction(self.table, schema, location=self.location)
        self._fill(making, has_rows=False)
        making.commit_transaction()

    def _fill(self, transaction: Transaction, *, has_rows: bool) -> None:
        from pyiceberg.expressions import AlwaysTrue

        told = {_RECEIPT: self.receipt, **({} if self.token is None else {_TOKEN: self.token})}
        if self.mode == "overwrite" and has_rows:
            transaction.delete(AlwaysTrue(), snapshot_properties=told)
        if self.files:
            transaction.add_files(list(self.files), snapshot_properties=told)
        else:  # there may be no snapshot to tell
            transaction.set_properties({f"{key}.without-rows": value for key, value in told.items()})

    def is_committed(self, access: Access) -> bool:
        """Whether a snapshot has the job's receipt, or its token."""
        catalog = self._catalog(access)
        if not catalog.table_exists(self.table):
            return False
        table = catalog.load_table(self.table)
        return _tells(table, _RECEIPT, self.receipt) or (self.token is not None and has_token(table, self.token))

    def undo(self, access: Access) -> None:
        """Remove the files; no snapshot names them."""
        Folder(access.bridge, self.staging).delete()

    def _catalog(self, access: Access) -> Catalog:
        return catalog_of(with_secrets(self.catalog, access.secrets.get(self.address)), SinkError)


def address_of(catalog: Mapping[str, str]) -> str:
    """Return where a catalogue is, without secrets."""
    return mask(catalog.get("uri") or catalog.get("name", "default"))


def has_token(table: Table, token: str) -> bool:
    """Whether a snapshot that is kept tells of a token."""
    return _tells(table, _TOKEN, token)


def _tells(table: Table, key: str, value: str) -> bool:
    if table.properties.get(f"{key}.without-rows") == value:
        return True
    told = (snapshot.summary for snapshot in table.metadata.snapshots)
    return any(summary is not None and summary.additional_properties.get(key) == value for summary in told)


def catalog_of(properties: Mapping[str, str], error: type[SourceError | SinkError]) -> Catalog:
    """Connect to a catalogue.

    Raises
    ------
    SinkError, SourceError
        As `error` says, if it cannot be reached.
    """
    needs("pyiceberg", "iceberg", error)
    from pyiceberg.catalog import load_catalog

    name = properties.get("name", "default")

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
