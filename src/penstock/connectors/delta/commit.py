"""Commit records of a Delta table: staged files that a log entry adds to the table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote, unquote

from penstock.commit.moves import move_files
from penstock.commit.names import STAGED_FOLDER, check_files, check_within
from penstock.connectors.core.extras import absolute_path, require_module, secrets_for, with_secrets
from penstock.connectors.delta.files import DeltaColumns, DeltaFile, files_of, spark_reads_partition
from penstock.connectors.tables.commit import PreparedTableFiles, PreparedUpsert, Upsert
from penstock.connectors.tables.table_files import StagedFiles
from penstock.connectors.tables.table_schema import CHAR_TYPE_KEY
from penstock.errors import CommitError, CommitUnknownError, SinkError
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

    from penstock.commit import Access
    from penstock.connectors.core.predicates import Predicate

    Files = tuple[tuple[str, int, int, tuple[tuple[str, str | None], ...]], ...]  # see `PreparedDelta`

_RECEIPT_KEY = "penstock.receipt"
_UNESCAPED = "/!$&'()+,-.:;=@_~"
"""Characters of a path that deltalake (1.6) does not escape in remove actions."""
_REJECTIONS = ("LocalFileSystem", "table already exists")
"""Texts in deltalake's (1.6) untyped errors which prove that nothing was committed: an error of the local file system,
where a failed call has no later effect (unlike in an object store), and a table that another process has created."""
_CONSTRAINT_KEYS = ("delta.invariants", "delta.generationExpression", "delta.identity")
"""Prefixes of metadata keys that constrain the values of a column."""
_SUPPORTED_FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
"""The writer features of Delta's protocol that deltalake (1.6) supports; it rejects others only at the commit."""
_NAMED_FEATURES_VERSION = 7
"""The writer protocol version since which a table lists its features; version 6 implies all features of its time."""


@dataclass(frozen=True)
class PreparedDelta(PreparedTableFiles["DeltaTable"]):
    """Commit record of files that are not in a Delta table's log yet.

    `path` and `root` are the table's folder, as deltalake and as Spark address it. `schema` is JSON as in the log.
    `files` are the path (relative to `staging` and then to `root`), bytes, rows and partition values of each file.
    `version` is the version that the job has read, None if the table did not exist. In the log, `receipt` identifies
    this commit, and `token` every run that writes the same rows. `options` are deltalake's storage options, no secrets.
    """

    kind: ClassVar[str] = "delta"
    retry_pauses: ClassVar[tuple[float, ...]] = tuple(0.05 * number for number in range(1, 10))  # seconds

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

    def check_names(self) -> None:
        """Reject a staging folder or files outside the table's folder."""
        check_within(self.staging, self.root, STAGED_FOLDER)
        if not all(isinstance(file, tuple) and file and isinstance(file[0], str) for file in self.files):
            raise ValueError("a file has no path")
        check_files(file[0] for file in self.files)

    def make_ready(self, access: Access) -> None:
        """Move the files into the table's folder, and check that the columns and partitions are unchanged."""
        self.move_staged_files(access)
        self.check_table(self.load_table(access))

    def move_staged_files(self, access: Access) -> None:
        """Move the files from the staging folder into the table's folder."""
        paths = tuple(path for path, *_ in self.files)
        for folder in sorted({path.rpartition("/")[0] for path in paths}):
            HadoopPath(access.bridge, f"{self.root}/{folder}").make()
        move_files(access, self.staging, self.root, paths)

    def commit(self, access: Access) -> None:
        """Write the log entry; an overwrite replaces all rows of the previous version."""
        # An append does not conflict with other appends, so deltalake may retry.
        self._commit(access, retries=None if self.mode == "append" else 0)

    def complete(self, access: Access) -> None:
        """Write the log entry without deltalake's retries, which do not check if later versions have the entry."""
        self._commit(access, retries=0)

    def _commit(self, access: Access, retries: int | None) -> None:
        def commit(table: DeltaTable | None) -> None:
            self.check_table(table)
            self.commit_onto(access, table, retries)

        self.commit_onto_latest(access, commit)

    def commit_onto(self, access: Access, table: DeltaTable | None, retries: int | None = 0) -> None:
        """Move the files into the table's folder, and write the log entry as the next version after `table`.

        `retries` is how often deltalake retries onto later versions, without looking for the entry in them; None for
        its default.
        """
        from deltalake import Schema
        from deltalake.transaction import RemoveAction

        self.move_staged_files(access)
        schema, partition_by = Schema.from_json(self.schema), list(self.partition_by)
        if table is None:
            create_table(self, access, schema, self._added())
            return
        mode: Literal["append", "overwrite"] = "overwrite" if self.mode == "overwrite" else "append"
        properties = commit_properties(self.receipt, self.token, retries)
        with reporting_unknown_outcome(self.target):
            removed = [RemoveAction(path, True, int(time.time() * 1000)) for path in self.removed]
            actions: list[AddAction | RemoveAction] = [*self._added(), *removed]
            table.create_write_transaction(actions, mode, schema, partition_by, commit_properties=properties)

    def is_conflict(self, access: Access, error: Exception, table: DeltaTable | None) -> bool:
        """Whether deltalake raised `error` and the table has a newer version; the error alone proves no conflict."""
        from deltalake.exceptions import DeltaError

        if not isinstance(error, DeltaError):
            return False
        latest = self.load_table(access)
        return (None if latest is None else latest.version()) != (None if table is None else table.version())

    def _added(self) -> list[AddAction]:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        return [
            AddAction(path, size, dict(values), now, True, json.dumps({"numRecords": rows}))
            for path, size, rows, values in self.files
        ]

    def check_table(self, table: DeltaTable | None) -> None:
        """Raise `SinkError` if partitions or columns have changed since the job began, or a file cannot be removed."""
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
        if self.mode != "append":  # an append removes no files
            check_file_names(table, self.path)
        if self.mode != "overwrite" and table.schema().to_json() != Schema.from_json(self.schema).to_json():
            raise SinkError(
                f"the columns of table {self.path} have changed while the job ran", hint="run the job again"
            )

    def is_in(self, table: DeltaTable | None) -> bool:
        """Whether the log up to this version has the entry of this commit, or of another run with its token."""
        import pyarrow as pa

        if table is None:
            return False
        if self.token is not None and table.transaction_version(app_id(self.token)) is not None:
            return True
        later_versions = table.version() - (-1 if self.version is None else self.version)
        if later_versions <= 0:
            return False
        entries = table.history(later_versions)
        if any(entry.get(_RECEIPT_KEY) == self.receipt for entry in entries):
            return True
        if len(entries) == later_versions:  # no later entry was deleted
            return False
        paths = {path for path, *_ in self.files}
        referenced = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        if any(path in paths or unquote(path) in paths for path in referenced):
            return True
        raise CommitError.no_evidence(self.target, "the old entries of its log", self.staging)

    def undo(self, access: Access) -> None:
        """Remove the files, which the log does not reference."""
        self.remove_files(access)
        self.finish(access)

    def remove_files(self, access: Access) -> None:
        """Remove the files from the table's folder."""
        for path, *_ in self.files:
            HadoopPath(access.bridge, f"{self.root}/{path}").delete()

    def finish(self, access: Access) -> None:
        """Remove the staging folder."""
        HadoopPath(access.bridge, self.staging).delete()

    def load_table(self, access: Access) -> DeltaTable | None:
        """Return the latest version of the table, None if it does not exist."""
        require_module("deltalake", "delta", SinkError)
        return table_at(self.deltalake_path(access), self.storage_options(access))

    def deltalake_path(self, access: Access) -> str:
        """Return the table's folder as ``deltalake`` addresses it; if `path` is relative (old journals), use `root`."""
        if absolute_path(self.path) == self.path:
            return self.path
        return HadoopPath(access.bridge, self.root).local_path or self.path

    def storage_options(self, access: Access) -> dict[str, str]:
        """Return the storage options of ``deltalake`` with secrets."""
        return with_secrets(self.options, secrets_for(access, self.address))


def list_files(staged: StagedFiles) -> Files:
    """Return the staged files in the form of `PreparedDelta.files`: paths are relative to the staging folder."""
    return tuple(
        (file.path.partition("/")[2], file.size, file.rows, tuple(file.partition.items())) for file in staged.files()
    )


def create_table(record: PreparedDelta, access: Access, schema: Schema, actions: list[AddAction]) -> None:
    """Create a table whose first version has the files."""
    from deltalake.transaction import create_table_with_add_actions

    with reporting_unknown_outcome(record.target):
        create_table_with_add_actions(
            record.deltalake_path(access),
            schema,
            actions,
            mode="error",
            partition_by=list(record.partition_by),
            storage_options=record.storage_options(access) or None,
            commit_properties=commit_properties(record.receipt, record.token, None),
        )


@contextmanager
def reporting_unknown_outcome(target: str) -> Iterator[None]:
    """Raise `CommitUnknownError` for errors in the block, unless they prove that nothing was committed.

    A rejection by deltalake, or an error of the local file system, is such a proof.
    """
    from deltalake.exceptions import CommitFailedError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError

    try:
        yield
    except (CommitFailedError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError):
        raise
    except Exception as error:
        if any(text in str(error) for text in _REJECTIONS):
            raise
        raise CommitUnknownError.of(target, error) from error


def table_at(path: str, options: Mapping[str, str]) -> DeltaTable | None:
    """Return the table at a path; None if there is no table."""
    from deltalake import DeltaTable

    storage = dict(options) or None
    return DeltaTable(path, storage_options=storage) if DeltaTable.is_deltatable(path, storage) else None


def check_file_names(table: DeltaTable, path: str) -> None:
    """Reject a table whose log has file names that deltalake would escape differently.

    The removal of such a file would have no effect, so readers would still see its rows.
    """
    import pyarrow as pa

    for name in pa.table(table.get_add_actions()).column("path").to_pylist():
        if quote(unquote(name), safe=_UNESCAPED) != name:
            raise SinkError(
                f"rows of table {path} cannot be replaced",
                cause=f"its log has a file {name}, which deltalake could not remove, as it escapes names differently",
                hint="replace them with the program that has written this file",
            )


def app_id(token: str) -> str:
    """Return the application id (``appId`` in Delta's protocol) under which the log stores a token."""
    return f"penstock-{token}"


def commit_properties(receipt: str, token: str | None, retries: int | None) -> CommitProperties:
    """Return the commit properties that identify the job in the log, and limit retries by deltalake."""
    from deltalake import CommitProperties, Transaction

    transactions = None if token is None else [Transaction(app_id(token), 0)]
    return CommitProperties({_RECEIPT_KEY: receipt}, max_commit_retries=retries, app_transactions=transactions)


@dataclass(frozen=True)
class DeltaUpsert(Upsert["DeltaTable", DeltaFile]):
    """The computation of an upsert into a Delta table; `root` is the table's folder, as Spark addresses it."""

    def files(self, table: DeltaTable, predicates: Sequence[Predicate]) -> list[DeltaFile]:
        """Return the files of a version that may have rows that match the predicates."""
        return files_of(table, predicates, DeltaColumns.of(table))


def check_upsert(table: DeltaTable, path: str) -> None:
    """Reject a table whose files cannot be rewritten.

    These are tables with deletion vectors, a change data feed, ``delta.appendOnly``, file names that deltalake escapes
    differently, or a file whose partition values Spark cannot read from the path.
    """
    check_file_names(table, path)
    columns, configuration = DeltaColumns.of(table), table.metadata().configuration
    files, cause = files_of(table, (), columns), ""
    if any(file.selection is not None for file in files):
        cause = "it has rows that are deleted by deletion vectors"
    elif not all(spark_reads_partition(file, columns) for file in files):
        cause = "Spark cannot read the partition values from the names of its folders"
    elif str(configuration.get("delta.enableChangeDataFeed")).lower() == "true":
        cause = "it records the changes of its rows (delta.enableChangeDataFeed)"
    elif str(configuration.get("delta.appendOnly")).lower() == "true":
        cause = "its rows may not be replaced (delta.appendOnly)"
    if cause:
        raise SinkError(f"rows of table {path} cannot be replaced", cause=cause, hint="use Delta Lake's MERGE")


@dataclass(frozen=True)
class PreparedDeltaUpsert(PreparedUpsert["DeltaTable"], PreparedDelta):
    """Commit record of an upsert: files that replace files of the table."""

    kind: ClassVar[str] = "delta-upsert"

    def commit(self, access: Access) -> None:
        """Recompute files that do not fit the latest version, and write the log entry; retry after a conflict."""
        attempts = self.commit_optimistically(access)
        for obsolete in attempts[:-1]:  # only the last attempt is committed
            obsolete.remove_files(access)
        for recomputed in attempts[1:]:  # `finish` removes the staging folder of the first attempt
            HadoopPath(access.bridge, recomputed.staging).delete()

    def complete(self, access: Access) -> None:
        """Call `commit`, which looks for the entry in the log before each attempt to write it."""
        self.commit(access)

    def fitting(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Return a record that fits this version; reject a version with other columns or partitions."""
        self.check_table(table)
        return super().fitting(access, table)

    def is_based_on(self, table: DeltaTable | None) -> bool:
        """Whether the record was computed from this version."""
        return self.version == (None if table is None else table.version())

    def still_fits(self, access: Access, table: DeltaTable) -> bool:
        """Whether the files fit a later version unchanged; reject a table whose rows cannot be replaced."""
        from deltalake import DeltaTable

        check_upsert(table, self.path)
        if self.version is None:
            return False
        columns = DeltaColumns.of(table)
        base = DeltaTable(self.deltalake_path(access), self.version, self.storage_options(access) or None)
        base_files, current_files = files_of(base, (), columns), files_of(table, (), columns)
        return self._upsert(access).still_fits(self.removed, base_files, current_files)

    def recomputed(self, access: Access, table: DeltaTable | None) -> PreparedDeltaUpsert:
        """Write the files of the upsert for another version, and return their record."""
        version = None if table is None else table.version()
        staged = StagedFiles(access.bridge.spark, self.root, self.partition_by)
        removed = self._upsert(access).write(table, staged)
        return replace(self, files=list_files(staged), staging=staged.folder, version=version, removed=removed)

    def _upsert(self, access: Access) -> DeltaUpsert:
        return DeltaUpsert(access.bridge.spark, self.table_key, self.rows, self.row_type, self.root)

    def remove_attempt(self, access: Access) -> None:
        """Remove the attempt's files from the table's folder, and its staging folder."""
        self.remove_files(access)
        super().remove_attempt(access)


def check_writable(table: DeltaTable, path: str, mode: str) -> None:
    """Reject a table with constraints that Penstock does not enforce, or to which deltalake could not commit."""
    protocol = table.protocol()
    unsupported = sorted(set(protocol.writer_features or ()) - _SUPPORTED_FEATURES)
    if protocol.min_writer_version == _NAMED_FEATURES_VERSION - 1:  # implies identity columns, which deltalake lacks
        unsupported = ["identityColumns"]
    cause = _unenforced_constraint(table, mode)
    if unsupported:
        cause = f"its writers must support {', '.join(unsupported)}, which deltalake does not"
    elif mode == "overwrite" and str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true":
        raise SinkError(
            f"rows of table {path} cannot be replaced",
            cause="its rows may not be replaced (delta.appendOnly)",
            hint='write it with mode="append", or unset the property',
        )
    if cause:
        raise SinkError(f"table {path} cannot be written", cause=cause, hint="write it with Delta Lake itself")


def _unenforced_constraint(table: DeltaTable, mode: str) -> str | None:
    """Return the reason, a clause, why writes could violate the table's definition; None if they cannot."""
    mapping = DeltaColumns.of(table).mode
    if mapping != "none":
        return f"its columns have different names in its files (column mapping by {mapping})"
    constraints = [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
    columns = json.loads(table.schema().to_json())["fields"]
    nested = [field for column in columns for field in _nested_fields(column["type"])]
    for column in [*columns, *nested]:
        constraints += [f"{key} of {column['name']}" for key in column["metadata"] if key.startswith(_CONSTRAINT_KEYS)]
    if mode != "overwrite":  # an overwrite replaces the schema; `cast_to_table` checks only top-level columns
        constraints += [
            f"the length {field['metadata'][CHAR_TYPE_KEY]} of {field['name']}"
            for field in nested
            if CHAR_TYPE_KEY in field["metadata"]
        ]
    return f"Penstock does not enforce {constraints[0]}" if constraints else None


def _nested_fields(data_type: Any) -> Iterator[dict[str, Any]]:
    """Yield the nested fields of a type in Delta's JSON schema."""
    if not isinstance(data_type, dict):
        return
    fields = data_type.get("fields", [])
    yield from fields
    element_types = map(data_type.get, ("elementType", "keyType", "valueType"))
    for inner_type in (*(field["type"] for field in fields), *element_types):
        yield from _nested_fields(inner_type)
