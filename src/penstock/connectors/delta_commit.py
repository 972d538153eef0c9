"""What a job has ready for a Delta table: files in its folder, which one entry of its log names."""

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
from penstock.connectors.extras import absolute, given_for, needs, with_secrets
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
_AS_THEY_ARE = "/!$&'()+,-.:;=@_~"
"""Characters of a path that deltalake (1.6) does not escape where it removes a file."""
PAUSES = tuple(0.05 * number for number in range(1, 10))
"""Seconds before a commit that replaces rows, and came too late, is tried again."""


_REFUSALS = ("LocalFileSystem", "table already exists")
"""Texts of errors of deltalake (1.6) that refuse a commit and have no type of their own: its client of this machine's
file system, whose calls have ended when they fail, and a table that another has made."""


@dataclass(frozen=True)
class PreparedDelta(Prepared):
    """Files of a Delta table that its log does not name yet.

    Parameters
    ----------
    path
        The table.
    root
        Its folder, as Spark knows it.
    mode
        ``append`` or ``overwrite``.
    schema
        What was written, as the log has it.
    partition_by
        The partition columns.
    files
        Path, bytes, rows and partition values of each file.
    staging
        Where the files lie at first, by the same paths.
    version
        The version of the table that was seen, None where there was no table.
    receipt
        Tells the job's entry in the log from others.
    token
        The name of what is written, if it has one.
    options
        What ``deltalake`` needs to reach the log, but for secrets.
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
        """Refuse a staging folder outside the table, and files that lead out of it."""
        check_within(self.staging, self.root, STAGED_ROWS)
        if not all(isinstance(file, tuple) and file and isinstance(file[0], str) for file in self.files):
            raise ValueError("a file has no path")
        check_files(file[0] for file in self.files)

    def ready(self, access: Access) -> None:
        """Move the files to where the table's others lie, and look whether the table still is as it was."""
        self.put_in_place(access)
        self.check_table(self.table_now(access))

    def put_in_place(self, access: Access) -> None:
        """Move the files to where the table's others lie."""
        paths = tuple(path for path, *_ in self.files)
        for folder in sorted({path.rpartition("/")[0] for path in paths}):
            Folder(access.bridge, f"{self.root}/{folder}").make()
        move_files(access, self.staging, self.root, paths)

    def commit(self, access: Access) -> None:
        """Write the entry of the log; one that replaces rows replaces all those of the version before it."""
        # What others have appended since does not matter to rows that are appended.
        self._commit(access, retries=None if self.mode == "append" else 0)

    def complete(self, access: Access) -> None:
        """Write the entry of the log, onto the version that was looked at: a later one may have the job's own entry."""
        self._commit(access, retries=0)

    def _commit(self, access: Access, retries: int | None) -> None:
        """Write the entry onto a version that does not have it.

        Parameters
        ----------
        retries
            How often deltalake tries later versions by itself, which it does not ask for the entry; None for its own
            number.
        """
        from deltalake.exceptions import DeltaError

        for pause in (*PAUSES, None):
            table = self.table_now(access)
            if self.is_in(table):
                return
            self.check_table(table)
            self.put_in_place(access)
            try:
                self._write_entry(access, table, retries)
            except DeltaError:
                if pause is None or not self.has_moved(access, table):
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
        by, told = list(self.partition_by), properties_of(self.receipt, self.token, retries)
        with answered_clearly(self.target):
            table.create_write_transaction([*actions], self.mode, schema, by, commit_properties=told)

    def has_moved(self, access: Access, table: DeltaTable | None) -> bool:
        """Whether the log has entries after a version, so that a commit onto it came too late."""
        now = self.table_now(access)
        return (None if now is None else now.version()) != (None if table is None else table.version())

    def _added(self) -> list[AddAction]:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        return [
            AddAction(path, size, dict(values), now, True, json.dumps({"numRecords": rows}))
            for path, size, rows, values in self.files
        ]

    def check_table(self, table: DeltaTable | None) -> None:
        """Refuse a table whose columns or partitions are no longer as the job has found them.

        Raises
        ------
        SinkError
            If they have changed.
        """
        from deltalake import Schema

        if table is None:
            return
        by = tuple(table.metadata().partition_columns)
        if by != self.partition_by:
            raise SinkError(
                f"the partitions of table {self.path} have changed while the job ran",
                cause=f"it is partitioned by {by}, and the job has written files by {self.partition_by}",
                hint="run the job again",
            )
        if self.mode != "append":
            check_names(table, self.path)
        if self.mode != "overwrite" and table.schema().to_json() != Schema.from_json(self.schema).to_json():
            raise SinkError(
                f"the columns of table {self.path} have changed while the job ran", hint="run the job again"
            )

    def is_committed(self, access: Access) -> bool:
        """Whether the log has the job's entry.

        Raises
        ------
        CommitError
            If that cannot be told, as the part of the log is gone where the entry would be.
        """
        return self.is_in(self.table_now(access))

    def is_in(self, table: DeltaTable | None) -> bool:
        """Whether the log has the job's entry, up to a version; see `is_committed`."""
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
        if self._names_a_file(table):
            return True
        raise CommitError.forgotten(self.target, "the old entries of its log", self.staging)

    def _names_a_file(self, table: DeltaTable) -> bool:
        """Whether the newest version has a file of the job."""
        import pyarrow as pa

        mine = {path for path, *_ in self.files}
        named = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        return any(path in mine or unquote(path) in mine for path in named)

    def undo(self, access: Access) -> None:
        """Remove the files; the log does not name them."""
        self.remove_files(access)
        self.finish(access)

    def remove_files(self, access: Access) -> None:
        """Remove the files from the table's folder."""
        for path, *_ in self.files:
            Folder(access.bridge, f"{self.root}/{path}").delete()

    def finish(self, access: Access) -> None:
        """Remove the folder where the files were at first."""
        Folder(access.bridge, self.staging).delete()

    def table_now(self, access: Access) -> DeltaTable | None:
        """Return the newest version of the table, None if there is none."""
        needs("deltalake", "delta", SinkError)
        return table_at(self.place(access), self.reach(access))

    def place(self, access: Access) -> str:
        """Return the path for ``deltalake``; relative ones of older journals mean what they did where those ran."""
        if absolute(self.path) == self.path:
            return self.path
        return Folder(access.bridge, self.root).local_path or self.path

    def reach(self, access: Access) -> dict[str, str]:
        """Return what ``deltalake`` needs to reach the log."""
        return with_secrets(self.options, given_for(access, self.address))


def files_in_log(staged: StagedFiles) -> Files:
    """Return what was written as records have it."""
    return tuple((one.path, one.size, one.rows, tuple(one.partition.items())) for one in staged.places())


def create_table(record: PreparedDelta, access: Access, schema: Schema, actions: list[AddAction]) -> None:
    """Make a table of which the first version has the files."""
    from deltalake.transaction import create_table_with_add_actions

    with answered_clearly(record.target):
        create_table_with_add_actions(
            record.place(access),
            schema,
            actions,
            mode="error",
            partition_by=list(record.partition_by),
            storage_options=record.reach(access) or None,
            commit_properties=properties_of(record.receipt, record.token, None),
        )


@contextmanager
def answered_clearly(target: str) -> Iterator[None]:
    """Let a commit either happen, or fail for certain.

    Raises
    ------
    CommitUnknownError
        For any error but a refusal by deltalake, or by the file system of this machine, which has ended with the call.
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
    """Return the table at a path, None if there is none."""
    from deltalake import DeltaTable

    given = dict(options) or None
    return DeltaTable(path, storage_options=given) if DeltaTable.is_deltatable(path, given) else None


def check_names(table: DeltaTable, path: str) -> None:
    """Refuse to replace rows of files whose names deltalake would write in another way than the log has them.

    Raises
    ------
    SinkError
        If there is such a file: every reader would still find its rows.
    """
    import pyarrow as pa

    for name in pa.table(table.get_add_actions()).column("path").to_pylist():
        if quote(unquote(name), safe=_AS_THEY_ARE) != name:
            raise SinkError(
                f"rows of table {path} cannot be replaced",
                cause=f"its log has a file {name}, whose name deltalake would write in another way, so that it stayed",
                hint="replace them with the program that has written them",
            )


def app_id(token: str) -> str:
    """Return the application that a token is the only transaction of, in the words of Delta's protocol."""
    return f"penstock-{token}"


def properties_of(receipt: str, token: str | None, retries: int | None) -> CommitProperties:
    """Return what an entry of the log tells of its job, and how often deltalake tries again by itself."""
    from deltalake import CommitProperties, Transaction

    transactions = None if token is None else [Transaction(app_id(token), 0)]
    return CommitProperties({_RECEIPT: receipt}, max_commit_retries=retries, app_transactions=transactions)
