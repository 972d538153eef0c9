"""What a job has ready for a Delta table: files in its folder, which one entry of its log names."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

from penstock.commit import Prepared
from penstock.commit.moves import move_files
from penstock.connectors.extras import absolute, given_for, needs, with_secrets
from penstock.errors import CommitError, SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction

    from penstock.commit import Access

_RECEIPT = "penstock.receipt"
_TRIES = 10
_PAUSE = 0.05
"""Seconds before an overwrite that came too late is tried again, more each time."""


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

    path: str
    root: str
    mode: str
    schema: str
    partition_by: tuple[str, ...]
    files: tuple[tuple[str, int, int, tuple[tuple[str, str | None], ...]], ...]
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

    def ready(self, access: Access) -> None:
        """Move the files to where the table's others lie, and look whether the table still is as it was."""
        self._place(access)
        self._check(access)

    def _place(self, access: Access) -> None:
        paths = tuple(path for path, *_ in self.files)
        for folder in sorted({path.rpartition("/")[0] for path in paths}):
            Folder(access.bridge, f"{self.root}/{folder}").make()
        move_files(access, self.staging, self.root, paths)

    def commit(self, access: Access) -> None:
        """Write the entry of the log; one that replaces rows replaces all those of the version before it."""
        from deltalake.exceptions import CommitFailedError

        for attempt in range(_TRIES):
            if self.is_committed(access):
                return
            self._place(access)
            try:
                self._write_entry(access)
            except CommitFailedError:
                if self.mode == "append" or attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE * (1 + attempt))
            else:
                return

    def _write_entry(self, access: Access) -> None:
        from deltalake import Schema
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        actions = [
            AddAction(path, size, dict(values), now, True, json.dumps({"numRecords": rows}))
            for path, size, rows, values in self.files
        ]
        table, schema = self._check(access), Schema.from_json(self.schema)
        if table is None:
            create_table(self, access, schema, actions)
        else:
            # What others have appended since does not matter to rows that are appended; what is replaced must be all.
            retries = None if self.mode == "append" else 0
            by, told = list(self.partition_by), _properties(self.receipt, self.token, retries)
            table.create_write_transaction([*actions], self.mode, schema, by, commit_properties=told)

    def _check(self, access: Access) -> DeltaTable | None:
        from deltalake import Schema

        table = self._table(access)
        if table is None or self.mode != "append":
            return table
        if table.schema().to_json() != Schema.from_json(self.schema).to_json():
            raise SinkError(
                f"the columns of table {self.path} have changed while the job ran", hint="run the job again"
            )
        return table

    def is_committed(self, access: Access) -> bool:
        """Whether the log has the job's entry.

        Raises
        ------
        CommitError
            If that cannot be told, as the part of the log is gone where the entry would be.
        """
        table = self._table(access)
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
        for path, *_ in self.files:
            Folder(access.bridge, f"{self.root}/{path}").delete()
        self.finish(access)

    def finish(self, access: Access) -> None:
        """Remove the folder where the files were at first."""
        Folder(access.bridge, self.staging).delete()

    def _table(self, access: Access) -> DeltaTable | None:
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


def create_table(record: PreparedDelta, access: Access, schema: Schema, actions: list[AddAction]) -> None:
    """Make a table of which the first version has the files."""
    from deltalake.transaction import create_table_with_add_actions

    create_table_with_add_actions(
        record.place(access),
        schema,
        actions,
        mode="error",
        partition_by=list(record.partition_by),
        storage_options=record.reach(access) or None,
        commit_properties=_properties(record.receipt, record.token, None),
    )


def table_at(path: str, options: Mapping[str, str]) -> DeltaTable | None:
    """Return the table at a path, None if there is none."""
    from deltalake import DeltaTable

    given = dict(options) or None
    return DeltaTable(path, storage_options=given) if DeltaTable.is_deltatable(path, given) else None


def app_id(token: str) -> str:
    """Return the application that a token is the only transaction of, in the words of Delta's protocol."""
    return f"penstock-{token}"


def _properties(receipt: str, token: str | None, retries: int | None) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    transactions = None if token is None else [Transaction(app_id(token), 0)]
    return CommitProperties({_RECEIPT: receipt}, max_commit_retries=retries, app_transactions=transactions)
