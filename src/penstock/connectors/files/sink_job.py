"""The job of a file sink, which writes into a staging folder; the commit makes the files visible."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.commit.added_files import PreparedFiles
from penstock.commit.file_tokens import TOKENS_FOLDER, copy_tokens, has_token, write_token
from penstock.commit.folders import PreparedFolders
from penstock.commit.owner import Owner
from penstock.connectors.core.base import SinkJob, StageReport, already_written
from penstock.connectors.core.sink_checks import check_format, check_partition_columns
from penstock.connectors.files.compaction import compact, sample_bytes
from penstock.connectors.files.partition_commit import SUCCESS_MARKER, CommittedPartition, partition_values
from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Prepared
    from penstock.connectors.files.files import FileSink
    from penstock.connectors.files.partition_commit import PartitionCommitPolicy
    from penstock.spark.io.filesystem import HadoopPath

log = logging.getLogger("penstock.sinks")


class FileSinkJob(SinkJob):
    """Write into a hidden staging folder; the commit renames it to the target, or moves its partitions or files there.

    The staging folder is a sibling of the target. If the target is a separate volume, the staging folder is inside the
    target, because renames cannot cross volumes. If the target is a symbolic link, its destination is written.
    `replaces_partitions` says whether only partitions that get rows are replaced, `is_committed` whether the target
    already has the sink's idempotency token, and `of_table` whether the target is the folder of a table.
    """

    calls_python = False  # Spark itself writes the files
    nothing_to_write: str | None = None

    def __init__(
        self,
        spark: SparkSession,
        sink: FileSink,
        target: HadoopPath,
        *,
        replaces_partitions: bool,
        is_committed: bool,
        of_table: bool = False,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._target = target.resolved
        self._user_path = target  # symbolic links are not resolved
        self._is_volume = target.is_volume
        suffix, folder = f"{uuid.uuid4().hex[:12]}-{Owner.current().tag}", self._target
        sibling = folder.parent.child(f".penstock-{folder.name}-{suffix}")
        self._staging = folder.child(f".penstock-rows-{suffix}") if self._is_volume else sibling
        if is_committed:
            log.warning("%s already has the rows of token %s, nothing is written", folder, sink.token)
            self.nothing_to_write = already_written(str(sink.token))
        elif sink.mode == "ignore" and folder.exists():
            self.nothing_to_write = "the folder exists, and the mode is ignore"
        self.replaces_partitions = replaces_partitions
        self.partitions: list[str] = []
        """The folders of the written partitions, relative to the target; empty before `prepare`."""
        self._of_table = of_table
        self._schema: StructType | None = None
        self._files: list[str] | None = None
        """The files in the staging folder; None before `prepare`."""

    @property
    def target_folder(self) -> str:
        """The folder, with symbolic links resolved."""
        return str(self._target)

    @property
    def creates_target(self) -> bool:
        """Whether the folder does not exist and the staging folder is renamed to it."""
        return self.nothing_to_write is None and self._target.renames_atomically and not self._target.exists()

    def check(self, schema: StructType) -> None:
        """Reject rows without the partition columns, and rows that files of the format cannot hold."""
        if self.nothing_to_write:
            return
        where = f"output {self._sink.path}"
        check_partition_columns(self._spark, schema, self._sink.partition_columns, where)
        check_format(self._spark, schema, self._sink.format, self._sink.partition_columns, where)

    def sample_size(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the bytes of its files."""
        if self.nothing_to_write:
            return 0
        folder = self._staging.parent.child(f"{self._staging.name}-sample")
        return sample_bytes(df, folder, self._sink.format, self._sink.partition_columns, self._sink.options)

    def write(self, df: DataFrame) -> None:
        """Write the rows into the staging folder, which tasks of a failed write may have created again."""
        if self.nothing_to_write:
            return
        writer = df.write.format(self._sink.format).mode("overwrite")
        writer = writer.options(**self._sink.options).option("partitionOverwriteMode", "static")
        if self._sink.partition_columns:
            writer = writer.partitionBy(*self._sink.partition_columns)
        writer.save(str(self._staging))
        self._schema = df.schema

    def restart(self) -> bool:
        """Remove the files of a failed write, and return True, because the write can be repeated."""
        self._staging.delete()
        return True

    def compact(self, target_size: int) -> StageReport:
        """Merge small files; `target_size` is the target size of a file in bytes."""
        sink = self._sink
        return compact(
            self._spark, self._staging, sink.format, self._schema, sink.partition_columns, sink.options, target_size
        )

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Call each named policy for every written partition, after all files of the partition have become visible."""
        for folder in self.partitions:
            values = partition_values(folder)
            partition = CommittedPartition(self._spark, f"{self._user_path}/{folder}", values, self._sink.table)
            for name, policy in policies:
                try:
                    policy(partition)
                except Exception as error:
                    raise SinkError(
                        f"the partition commit policy {name!r} failed for {partition} of {self._target}",
                        cause=f"{type(error).__name__}: {error}",
                        hint="the job removes its new files; what the policy did for other partitions is not undone",
                    ) from error
        # `policies` is empty if a table has only the policy ``metastore``, which its commit has already carried out.
        names = ", ".join(name for name, _ in policies) or "metastore"
        return StageReport(show_count(len(self.partitions), "partition"), f"all files are visible; policies: {names}")

    def prepare(self) -> Prepared:
        """Plan the moves from the staging folder to the target.

        Called again once the commit's journal blocks other jobs: before that, another job may have changed the target.
        Only the first call lists the staged files; later calls add only token files, which the list does not contain.
        """
        staging, target, path = self._staging, self._target, str(self._target)
        if self.nothing_to_write:
            return PreparedFiles(path, str(staging), ())
        listed = self._files  # None in the first call
        if listed is None and self._of_table and self.replaces_partitions:
            staging.child(SUCCESS_MARKER).delete()  # Spark writes no marker if it replaces partitions of a table
        files = sorted(file for file, _ in staging.files_below(dotted_partitions=True)) if listed is None else listed
        self.partitions = sorted({file.rpartition("/")[0] for file in files} - {""})
        token = self._sink.token
        token_file: str | None = None
        if token is not None:
            if has_token(target, token):
                problem = f"another run has written the rows of token {token} to {target}"
                raise SinkError(problem, hint="nothing is left to do")
            token_file = write_token(staging, token, files)
        if target.exists():
            prepared = self._prepare_into_existing(files, token_file)
        elif target.renames_atomically:
            prepared = PreparedFolders(path, str(staging), ("",), may_replace=self._sink.mode == "overwrite")
        else:
            exclusive_folders = () if self._sink.mode == "append" else ("",)  # "": no other job may write to the target
            prepared = self._added_files(files, token_file, None, exclusive_folders=exclusive_folders)
        if listed is None:
            staging.sync()
            self._files = files
        else:  # only token files are new
            staging.child(TOKENS_FOLDER).sync()
            staging.sync_entries()
        return prepared

    def _prepare_into_existing(self, files: Sequence[str], token_file: str | None) -> Prepared:
        """Plan the moves into an existing target; as in Spark, mode ``error`` accepts only a table's empty folder."""
        staging, target, path = self._staging, self._target, str(self._target)
        if self._of_table and self._sink.mode == "error" and target.is_empty():
            return self._added_files(files, token_file, _FolderListing(target), exclusive_folders=("",))
        if self._sink.mode == "append":
            existing = _FolderListing(target)
            for file in files:
                if existing.has(file):  # a rollback must only remove files of this job
                    hint = "run the job again: its files get other names"
                    raise SinkError(f"{target}/{file} exists already", hint=hint)
            # The ``_SUCCESS`` markers of these partitions are hidden until all new files are visible.
            partitions = tuple(name for name in self.partitions if existing.has(f"{name}/{SUCCESS_MARKER}"))
            return self._added_files(files, token_file, existing, hidden_marker_partitions=partitions)
        if self._sink.mode != "overwrite":
            raise SinkError.already_exists(self._sink.path)
        existing = _FolderListing(target)
        # Object stores cannot rename a folder atomically, and no volume can be renamed: replace files individually.
        if not target.renames_atomically or (self._is_volume and not self.replaces_partitions):
            exclusive_folders = tuple(self.partitions) if self.replaces_partitions else ("",)
            replaced_files = self._replaced_files()
            return self._added_files(
                files, token_file, existing, replaced_files=replaced_files, exclusive_folders=exclusive_folders
            )
        if self.replaces_partitions:
            extra_files = self._token_and_marker(token_file)
            new_folders = _missing([name.rpartition("/")[0] for name in (*extra_files, *self.partitions)], existing)
            return PreparedFolders(path, str(staging), tuple(self.partitions), new_folders, extra_files)
        copy_tokens(target, staging)  # the new folder also has the tokens of earlier runs
        return PreparedFolders(path, str(staging), ("",))

    def _added_files(
        self, files: Sequence[str], token_file: str | None, existing: _FolderListing | None, **fields: tuple[str, ...]
    ) -> PreparedFiles:
        """Return the commit record of individually moved files: the token file first, the target's ``_SUCCESS`` last.

        `existing` is None if there is no target. `fields` are the other fields of the record.
        """
        extra_files = self._token_and_marker(token_file)
        new_folders = _missing([file.rpartition("/")[0] for file in (*extra_files, *files)], existing)
        names = tuple(sorted((*extra_files, *files), key=lambda name: name == SUCCESS_MARKER))
        return PreparedFiles(str(self._target), str(self._staging), names, new_folders, **fields)

    def _replaced_files(self) -> tuple[str, ...]:
        """Return the files that an overwrite replaces, preceded by the ``_SUCCESS`` markers of replaced partitions."""
        if not self.replaces_partitions:
            return tuple(sorted(file for file, _ in self._target.files_below(dotted_partitions=True)))
        existing = [name for name in self.partitions if self._target.child(name).exists()]
        folders = ((f"{name}/", self._target.child(name)) for name in existing)
        files = (file for prefix, folder in folders for file, _ in folder.files_below(prefix, dotted_partitions=True))
        markers = (f"{name}/{SUCCESS_MARKER}" for name in self.partitions)
        return (*(marker for marker in markers if self._target.child(marker).exists()), *sorted(files))

    def _token_and_marker(self, token_file: str | None) -> tuple[str, ...]:
        """Return the moved files that hold no rows: the token file, and a staged ``_SUCCESS`` that the target lacks."""
        needs_marker = self._staging.child(SUCCESS_MARKER).exists() and not self._target.child(SUCCESS_MARKER).exists()
        return (() if token_file is None else (token_file,)) + ((SUCCESS_MARKER,) if needs_marker else ())

    def abort(self) -> None:
        """Remove the staging folder."""
        self._staging.delete()

    def refresh(self) -> None:
        """Invalidate cached DataFrames that read the folder, as Spark does after a write."""
        if self.nothing_to_write:
            return
        for path in sorted({str(self._target), str(self._user_path)}):
            try:
                self._spark.catalog.refreshByPath(path)
            except Exception:
                log.warning("cached DataFrames that read %s could not be refreshed", path, exc_info=True)


class _FolderListing:
    """Lazy listing of an existing folder; each of its subfolders is listed at most once."""

    def __init__(self, folder: HadoopPath) -> None:
        self._folder = folder
        self._names: dict[str, set[str]] = {}

    def has(self, path: str) -> bool:
        """Whether a path relative to the folder exists."""
        parent, _, name = path.rpartition("/")
        if parent and not self.has(parent):
            return False
        if parent not in self._names:
            folder = self._folder.child(parent) if parent else self._folder
            try:
                self._names[parent] = {name for name, _, _ in folder.entries()}
            except Exception:
                if folder.exists():
                    raise
                self._names[parent] = set()  # another job has just moved the folder aside
        return name in self._names[parent]


def _missing(folders: Iterable[str], existing: _FolderListing | None) -> tuple[str, ...]:
    """Return the folders, including their parents, that a target lacks; `existing` is None if there is no target.

    The folder of tokens is returned even if it exists, so that a rollback removes it whenever it is empty.
    """
    needed = set() if existing is not None else {""}  # the target itself
    for folder in set(folders) - {""}:
        parts = folder.split("/")
        needed |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return tuple(sorted(name for name in needed if existing is None or name == TOKENS_FOLDER or not existing.has(name)))
