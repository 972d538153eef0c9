"""Writing of a file sink: a staging folder whose files become visible when the job commits."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.commit.added_files import PreparedFiles
from penstock.commit.file_tokens import FOLDER as TOKENS
from penstock.commit.file_tokens import has_token, keep_tokens, write_token
from penstock.commit.folders import PreparedFolders
from penstock.commit.owner import Owner
from penstock.connectors.core.base import (
    SinkJob,
    StageReport,
    already_written,
)
from penstock.connectors.core.sink_checks import check_format, check_partition_columns
from penstock.connectors.files.compaction import compact, sample_bytes
from penstock.connectors.files.partition_commit import (
    MARKER,
    CommittedPartition,
    partition_values,
)
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Prepared
    from penstock.connectors.files.files import FileSink
    from penstock.connectors.files.partition_commit import PartitionCommitPolicy
    from penstock.spark.io.filesystem import Folder

log = logging.getLogger("penstock.sinks")


class FileSinkJob(SinkJob):
    """Write into a hidden staging folder that is renamed, or whose files are moved, into the target at commit.

    The staging folder is a sibling of the target; inside the target if that is a volume of its own, as renames cannot
    cross volumes. If the target is a symbolic link, the link stays and its destination is written. `by_partition` says
    whether only partitions that get rows are replaced, and `is_committed` whether the target has the token of the sink
    already.
    """

    calls_python = False
    nothing_to_write: str | None = None

    def __init__(
        self,
        spark: SparkSession,
        sink: FileSink,
        target: Folder,
        *,
        by_partition: bool,
        is_committed: bool,
        of_table: bool = False,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._target = target.resolved
        self._named = target
        self._is_volume = target.is_volume
        mark, target = f"{uuid.uuid4().hex[:12]}-{Owner.me().tag}", self._target
        beside = target.parent.child(f".penstock-{target.name}-{mark}")
        self._staging = target.child(f".penstock-rows-{mark}") if self._is_volume else beside
        if is_committed:
            log.warning("%s holds %s already, nothing is written", target, sink.token)
            self.nothing_to_write = already_written(str(sink.token))
        elif sink.mode == "ignore" and target.exists():
            self.nothing_to_write = "the folder exists, and the mode is ignore"
        self.replaces_partitions = by_partition
        self.partitions: list[str] = []
        """The folders of the written partitions, relative to the target; empty before `prepare`."""
        self._of_table = of_table
        self._schema: StructType | None = None
        self._files: list[str] | None = None

    @property
    def target_folder(self) -> str:
        """The folder, with symbolic links resolved."""
        return str(self._target)

    @property
    def creates_target(self) -> bool:
        """Whether the folder does not exist and the staging folder is renamed to it."""
        return self.nothing_to_write is None and self._target.renames_whole and not self._target.exists()

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
        """Write the rows into the staging folder."""
        if self.nothing_to_write:
            return
        writer = df.write.format(self._sink.format).options(**self._sink.options).mode("error")
        if self._sink.partition_columns:
            writer = writer.partitionBy(*self._sink.partition_columns)
        writer.save(str(self._staging))
        self._schema = df.schema

    def restart(self) -> bool:
        """Remove what a failed write left behind."""
        self._files = None
        self._staging.delete()
        return True

    def compact(self, target: int) -> StageReport:
        """Merge small files."""
        sink = self._sink
        return compact(
            self._spark, self._staging, sink.format, self._schema, sink.partition_columns, sink.options, target
        )

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies to every written partition, after all its files have become visible."""
        for folder in self.partitions:
            values = partition_values(folder)
            partition = CommittedPartition(self._spark, f"{self._named}/{folder}", values, self._sink.table)
            for name, policy in policies:
                try:
                    policy(partition)
                except Exception as error:
                    raise SinkError.partition_commit(name, str(partition), str(self._target), error) from error
        names = ", ".join(name for name, _ in policies) or "the catalogue knows them"
        return StageReport(show_count(len(self.partitions), "partition"), f"all their files are visible: {names}")

    def prepare(self) -> Prepared:
        """Plan the moves from the staging folder to the target.

        Called again once other jobs see the journal, as they may have changed the target. Meanwhile, the staging folder
        changes only by tokens that other jobs have written.
        """
        staging, target, path = self._staging, self._target, str(self._target)
        if self.nothing_to_write:
            return PreparedFiles(path, str(staging), ())
        listed = self._files
        if listed is None and self._of_table and self.replaces_partitions:
            staging.child(MARKER).delete()
        files = sorted(file for file, _ in staging.files_below(unread=True)) if listed is None else listed
        self.partitions = sorted({file.rpartition("/")[0] for file in files} - {""})
        token = self._sink.token
        if token is not None:
            if has_token(target, token):
                raise SinkError(f"another run has written {token} to {target} meanwhile", hint="nothing is left to do")
            token = write_token(staging, token, files)
        if target.exists():
            prepared = self._prepare_beside(files, token)
        elif target.renames_whole:
            replaces = self._sink.mode == "overwrite"
            prepared = PreparedFolders(path, str(staging), ("",), replaces=replaces)
        else:
            prepared = self._added(files, token, None, owned=() if self._sink.mode == "append" else ("",))
        if listed is None:
            staging.sync()
            self._files = files
        else:
            staging.child(TOKENS).sync()
            staging.sync_entries()
        return prepared

    def _prepare_beside(self, files: Sequence[str], token: str | None) -> Prepared:
        """Plan the moves into an existing target."""
        staging, target, path = self._staging, self._target, str(self._target)
        if self._of_table and self._sink.mode == "error" and target.is_empty():
            return self._added(files, token, _Listing(target), owned=("",))
        if self._sink.mode == "append":
            existing = _Listing(target)
            for file in files:
                if existing.has(file):  # a rollback must only remove files of this job
                    hint = "run the job again: its files then get other names"
                    raise SinkError(f"{target}/{file} exists already", hint=hint)
            marked = tuple(name for name in self.partitions if existing.has(f"{name}/{MARKER}"))
            return self._added(files, token, existing, marked=marked)
        if self._sink.mode != "overwrite":
            raise SinkError.exists(self._sink.path)
        existing = _Listing(target)
        if not target.renames_whole or (self._is_volume and not self.replaces_partitions):
            owned = tuple(self.partitions) if self.replaces_partitions else ("",)
            return self._added(files, token, existing, away=self._replaced_files(), owned=owned)
        if self.replaces_partitions:
            beside = self._beside(token)
            new_folders = _missing([name.rpartition("/")[0] for name in (*beside, *self.partitions)], existing)
            return PreparedFolders(path, str(staging), tuple(self.partitions), new_folders, beside)
        keep_tokens(target, staging)
        return PreparedFolders(path, str(staging), ("",))

    def _added(
        self,
        files: Sequence[str],
        token: str | None,
        existing: _Listing | None,
        *,
        marked: tuple[str, ...] = (),
        away: tuple[str, ...] = (),
        owned: tuple[str, ...] = (),
    ) -> PreparedFiles:
        """Return a record of files that are moved individually: token files first, the marker of the folder last."""
        beside = self._beside(token)
        new_folders = _missing([file.rpartition("/")[0] for file in (*beside, *files)], existing)
        names = tuple(sorted((*beside, *files), key=lambda name: name == MARKER))
        return PreparedFiles(str(self._target), str(self._staging), names, new_folders, marked, away, owned)

    def _replaced_files(self) -> tuple[str, ...]:
        """Return the files that an overwrite replaces, after the markers of their partitions."""
        if not self.replaces_partitions:
            return tuple(sorted(file for file, _ in self._target.files_below(unread=True)))
        existing = [name for name in self.partitions if self._target.child(name).exists()]
        files = (file for name in existing for file, _ in self._target.child(name).files_below(f"{name}/", unread=True))
        markers = (f"{name}/{MARKER}" for name in self.partitions)
        return (*(marker for marker in markers if self._target.child(marker).exists()), *sorted(files))

    def _beside(self, token: str | None) -> tuple[str, ...]:
        """Return the token file and the marker that are added to an existing target."""
        needs_marker = self._staging.child(MARKER).exists() and not self._target.child(MARKER).exists()
        return (() if token is None else (token,)) + ((MARKER,) if needs_marker else ())

    def abort(self) -> None:
        """Remove the staging folder."""
        self._staging.delete()

    def refresh(self) -> None:
        """Invalidate cached readers of the folder, as Spark does after a write."""
        if self.nothing_to_write:
            return
        for path in sorted({str(self._target), str(self._named)}):
            try:
                self._spark.catalog.refreshByPath(path)
            except Exception:
                log.warning("cached readers of %s could not be refreshed", path, exc_info=True)


class _Listing:
    """Lazy listing of an existing folder; each of its folders is listed at most once."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._names: dict[str, set[str]] = {}

    def has(self, path: str) -> bool:
        """Return whether a path relative to the folder exists."""
        above, _, name = path.rpartition("/")
        if above and not self.has(above):
            return False
        if above not in self._names:
            folder = self._folder.child(above) if above else self._folder
            try:
                self._names[above] = {name for name, _, _ in folder.entries()}
            except Exception:
                if folder.exists():
                    raise
                self._names[above] = set()  # another job has just moved it aside
        return name in self._names[above]


def _missing(folders: Iterable[str], existing: _Listing | None) -> tuple[str, ...]:
    """Return the folders, including their parents, that a target lacks; `existing` is None if it does not exist itself.

    Folders for tokens are always included.
    """
    needed = set() if existing is not None else {""}
    for folder in set(folders) - {""}:
        parts = folder.split("/")
        needed |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return tuple(sorted(name for name in needed if existing is None or name == TOKENS or not existing.has(name)))
