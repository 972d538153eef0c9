"""Commit record of a Delta table: staged files that a log entry adds to the table."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, unquote

from penstock.commit import Prepared
from penstock.commit.moves import move_files
from penstock.commit.names import STAGED_ROWS, check_files, check_within
from penstock.connectors.extras import absolute, needs, secrets_for, with_secrets
from penstock.errors import CommitError, CommitUnknownError, SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction

    from penstock.commit import Access
    from penstock.connectors.staged_files import StagedFiles

    Files = tuple[tuple[str, int, int, tuple[tuple[str, str | None], ...]], ...]

_RECEIPT = "penstock.receipt"
_UNESCAPED = "/!$&'()+,-.:;=@_~"
"""Characters of a path that deltalake (1.6) does not escape in remove actions."""
PAUSES = tuple(0.05 * number for number in range(1, 10))
"""Seconds before each retry of a replacing commit after another commit came first."""


_REFUSALS = ("LocalFileSystem", "table already exists")
"""Messages of deltalake's (1.6) untyped errors that certainly mean no commit: errors of the local file system, whose
calls do not continue after a failure, and a table that another process created."""


@dataclass(frozen=True)
class PreparedDelta(Prepared):
    """Commit record of files that are not in a Delta table's log yet.

    Parameters
    ----------
    path
        The table, as deltalake addresses it.
    root
        The table's folder, as Spark addresses it.
    mode
        ``append`` or ``overwrite``.
    schema
        The schema of the rows, as JSON of the log.
    partition_by
        The partition columns.
    files
        Path, bytes, rows and partition values of each file.
    staging
        The staging folder, in which files have the same relative paths.
    version
        The version of the table that the job has read; None if the table did not exist.
    receipt
        The identifier of the job's entry in the log.
    token
        The idempotency token of the rows, or None.
    options
        The storage options of ``deltalake`` without secrets.
    """

    kind: ClassVar[str] = "delta"
    is_reversible: ClassVar[bool] = False
    may_land_late: ClassVar[bool] = True

    path: str
    root: str
    mode: str
    schema: str
    partition_by: tuple[str, ...]
    files: Files
    staging: str
    version: int | None
    receipt: str
    token: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        """The path."""
        return self.path

    @property
    def folder(self) -> str:
        """The table's folder."""
        return self.root

    def check_names(self) -> None:
        """Reject a staging folder or files outside the table's folder."""
        check_within(self.staging, self.root, STAGED_ROWS)
        if not all(isinstance(file, tuple) and file and isinstance(file[0], str) for file in self.files):
            raise ValueError("a file has no path")
        check_files(file[0] for file in self.files)

    def ready(self, access: Access) -> None:
        """Move the files into the table's folder, and check that the table is unchanged."""
        self.move_staged_files(access)
        self.check_table(self.table_now(access))

    def move_staged_files(self, access: Access) -> None:
        """Move the files from the staging folder into the table's folder."""
        paths = tuple(path for path, *_ in self.files)
        for folder in sorted({path.rpartition("/")[0] for path in paths}):
            Folder(access.bridge, f"{self.root}/{folder}").make()
        move_files(access, self.staging, self.root, paths)

    def commit(self, access: Access) -> None:
        """Write the entry of the log; an overwrite replaces all rows of the version before."""
        # An append does not conflict with other appends, so deltalake may retry.
        self._commit(access, retries=None if self.mode == "append" else 0)

    def complete(self, access: Access) -> None:
        """Write the entry of the log without retries by deltalake: a later version may have the entry already."""
        self._commit(access, retries=0)

    def _commit(self, access: Access, retries: int | None) -> None:
        """Write the entry onto a version that does not have it.

        Parameters
        ----------
        retries
            How often deltalake retries onto later versions, without checking them for the entry; None for its default.
        """
        from deltalake.exceptions import DeltaError

        for pause in (*PAUSES, None):
            table = self.table_now(access)
            if self.is_in(table):
                return
            self.check_table(table)
            self.move_staged_files(access)
            try:
                self._write_entry(access, table, retries)
            except DeltaError:
                if pause is None or not self.has_newer_version(access, table):
                    raise
                time.sleep(pause)
            else:
                return

    def _write_entry(self, access: Access, table: DeltaTable | None, retries: int | None) -> None:
        from deltalake import Schema

        actions, schema = self._added(), Schema.from_json(self.schema)
        if table is None:
            create_table(self, access, schema, actions)
            return
        partition_by, properties = list(self.partition_by), commit_properties(self.receipt, self.token, retries)
        with definite_outcome(self.target):
            table.create_write_transaction([*actions], self.mode, schema, partition_by, commit_properties=properties)

    def has_newer_version(self, access: Access, table: DeltaTable | None) -> bool:
        """Return whether the log has a later version than `table`."""
        latest = self.table_now(access)
        return (None if latest is None else latest.version()) != (None if table is None else table.version())

    def _added(self) -> list[AddAction]:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        return [
            AddAction(path, size, dict(values), now, True, json.dumps({"numRecords": rows}))
            for path, size, rows, values in self.files
        ]

    def check_table(self, table: DeltaTable | None) -> None:
        """Check that the columns and partitions of the table have not changed since the job began.

        Raises
        ------
        SinkError
            If they have changed.
        """
        from deltalake import Schema

        if table is None:
            return
        partition_by = tuple(table.metadata().partition_columns)
        if partition_by != self.partition_by:
            raise SinkError(
                f"the partitions of table {self.path} have changed while the job ran",
                cause=f"it is partitioned by {partition_by}, and the job has written files by {self.partition_by}",
                hint="run the job again",
            )
        if self.mode != "append":
            check_names(table, self.path)
        if self.mode != "overwrite" and table.schema().to_json() != Schema.from_json(self.schema).to_json():
            raise SinkError(
                f"the columns of table {self.path} have changed while the job ran", hint="run the job again"
            )

    def is_committed(self, access: Access) -> bool:
        """Return whether the log has the job's entry.

        Raises
        ------
        CommitError
            If that cannot be determined, because the relevant part of the log was cleaned up.
        """
        return self.is_in(self.table_now(access))

    def is_in(self, table: DeltaTable | None) -> bool:
        """Return whether the log has the job's entry up to this version; see `is_committed`."""
        if table is None:
            return False
        if self.token is not None and table.transaction_version(app_id(self.token)) is not None:
            return True
        newer = table.version() - (-1 if self.version is None else self.version)
        if newer <= 0:
            return False
        entries = table.history(newer)
        if any(entry.get(_RECEIPT) == self.receipt for entry in entries):
            return True
        if len(entries) == newer:
            return False
        if self._references_file(table):
            return True
        raise CommitError.forgotten(self.target, "the old entries of its log", self.staging)

    def _references_file(self, table: DeltaTable) -> bool:
        """Return whether the version references a file of the job."""
        import pyarrow as pa

        own = {path for path, *_ in self.files}
        referenced = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        return any(path in own or unquote(path) in own for path in referenced)

    def undo(self, access: Access) -> None:
        """Remove the files, which the log does not reference."""
        self.remove_files(access)
        self.finish(access)

    def remove_files(self, access: Access) -> None:
        """Remove the files from the table's folder."""
        for path, *_ in self.files:
            Folder(access.bridge, f"{self.root}/{path}").delete()

    def finish(self, access: Access) -> None:
        """Remove the staging folder."""
        Folder(access.bridge, self.staging).delete()

    def table_now(self, access: Access) -> DeltaTable | None:
        """Return the latest version of the table, None if it does not exist."""
        needs("deltalake", "delta", SinkError)
        return table_at(self.log_path(access), self.storage_options(access))

    def log_path(self, access: Access) -> str:
        """Return the path for ``deltalake``; a relative path of an older journal is resolved by `root`."""
        if absolute(self.path) == self.path:
            return self.path
        return Folder(access.bridge, self.root).local_path or self.path

    def storage_options(self, access: Access) -> dict[str, str]:
        """Return the storage options of ``deltalake`` with secrets."""
        return with_secrets(self.options, secrets_for(access, self.address))


def record_files(staged: StagedFiles) -> Files:
    """Return the staged files in the form of `PreparedDelta.files`."""
    return tuple((file.path, file.size, file.rows, tuple(file.partition.items())) for file in staged.files_in_folder())


def create_table(record: PreparedDelta, access: Access, schema: Schema, actions: list[AddAction]) -> None:
    """Create a table whose first version has the files."""
    from deltalake.transaction import create_table_with_add_actions

    with definite_outcome(record.target):
        create_table_with_add_actions(
            record.log_path(access),
            schema,
            actions,
            mode="error",
            partition_by=list(record.partition_by),
            storage_options=record.storage_options(access) or None,
            commit_properties=commit_properties(record.receipt, record.token, None),
        )


@contextmanager
def definite_outcome(target: str) -> Iterator[None]:
    """Raise a different error if the outcome of the commit in the block is unknown.

    Raises
    ------
    CommitUnknownError
        For errors that do not prove that nothing was committed. A rejection by deltalake, or an error of the local file
        system, proves it.
    """
    from deltalake.exceptions import CommitFailedError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError

    try:
        yield
    except (CommitFailedError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError):
        raise
    except Exception as error:
        if any(text in str(error) for text in _REFUSALS):
            raise
        raise CommitUnknownError.of(target, error) from error


def table_at(path: str, options: Mapping[str, str]) -> DeltaTable | None:
    """Return the table at a path, None if it does not exist."""
    from deltalake import DeltaTable

    storage = dict(options) or None
    return DeltaTable(path, storage_options=storage) if DeltaTable.is_deltatable(path, storage) else None


def check_names(table: DeltaTable, path: str) -> None:
    """Reject a table with file names that deltalake would escape in another way than the log does.

    Raises
    ------
    SinkError
        If there is such a file: its removal would have no effect, so readers would still see its rows.
    """
    import pyarrow as pa

    for name in pa.table(table.get_add_actions()).column("path").to_pylist():
        if quote(unquote(name), safe=_UNESCAPED) != name:
            raise SinkError(
                f"rows of table {path} cannot be replaced",
                cause=f"its log has a file {name}, whose name deltalake would write in another way, so that it stayed",
                hint="replace them with the program that has written them",
            )


def app_id(token: str) -> str:
    """Return the application id (``appId`` in Delta's protocol) whose only transaction is that of a token."""
    return f"penstock-{token}"


def commit_properties(receipt: str, token: str | None, retries: int | None) -> CommitProperties:
    """Return the commit properties that identify the job in the log, and limit retries by deltalake."""
    from deltalake import CommitProperties, Transaction

    transactions = None if token is None else [Transaction(app_id(token), 0)]
    return CommitProperties({_RECEIPT: receipt}, max_commit_retries=retries, app_transactions=transactions)
