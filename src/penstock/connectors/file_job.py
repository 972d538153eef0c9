"""The write of a job into a folder of files."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from penstock.commit.added_files import PreparedFiles
from penstock.commit.file_tokens import FOLDER as TOKENS
from penstock.commit.file_tokens import has_token, keep_tokens, write_token
from penstock.commit.folders import PreparedFolders
from penstock.commit.owner import Owner
from penstock.connectors.base import SinkJob, StageReport, already_written
from penstock.connectors.compaction import compact, report
from penstock.connectors.partition_commit import MARKER, CommittedPartition, partition_values
from penstock.connectors.sink_checks import check_format, check_partition_columns
from penstock.errors import SinkError
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Prepared
    from penstock.connectors.files import FileSink
    from penstock.connectors.partition_commit import PartitionCommitPolicy
    from penstock.spark.filesystem import Folder

log = logging.getLogger("penstock.sinks")


class FileSinkJob(SinkJob):
    """Write into a hidden staging folder that is renamed, or whose files are moved, into the target at commit.

    The staging folder is a sibling of the target; inside the target if that is a volume of its own, as renames cannot
    cross volumes.

    Parameters
    ----------
    spark
        The session.
    sink
        The sink.
    target
        Its folder; if it is a symbolic link, the link stays and its destination is written.
    by_partition
        Whether only partitions that get rows are replaced.
    is_committed
        Whether the target has the token of the sink already.
    of_table
        Whether the folder belongs to a table, see `FileSink.opened`.
    """

    calls_python = False

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
        self._skip = _skip_reason(sink, target, is_committed=is_committed)
        self._by_partition = by_partition
        self._of_table = of_table
        self._schema: StructType | None = None
        self._files: list[str] | None = None
        self._partitions: list[str] = []
        if is_committed:
            log.warning("%s holds %s already, nothing is written", target, sink.token)

    @property
    def nothing_to_write(self) -> str | None:
        """The reason why the folder needs no rows, None if it does."""
        return self._skip

    @property
    def target_folder(self) -> str:
        """The folder, with symbolic links resolved."""
        return str(self._target)

    @property
    def creates_target(self) -> bool:
        """Whether the folder does not exist and the staging folder is renamed to it."""
        return self._skip is None and self._target.renames_whole and not self._target.exists()

    def check(self, schema: StructType) -> None:
        """Reject rows without the partition columns, and rows that files of the format cannot hold."""
        if self._skip:
            return
        where = f"output {self._sink.path}"
        check_partition_columns(self._spark, schema, self._sink.partition_columns, where)
        check_format(self._spark, schema, self._sink.format, self._sink.partition_columns, where)

    def sample_size(self, df: DataFrame) -> int:
        """Write sample rows into a separate folder, remove it, and return the bytes of its files."""
        if self._skip:
            return 0
        folder = self._staging.parent.child(f"{self._staging.name}-sample")
        data_columns = df.drop(*self._sink.partition_columns)  # files do not store partition columns
        try:
            data_columns.write.format(self._sink.format).options(**self._sink.options).mode("error").save(str(folder))
            return sum(file.size() for file in folder.children() if not file.name.startswith(("_", ".")))
        finally:
            folder.delete()

    def write(self, df: DataFrame) -> None:
        """Write the rows into the staging folder."""
        if self._skip:
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

    @property
    def partitions(self) -> list[str]:
        """The folders of the written partitions, relative to the target; empty before `prepare`."""
        return list(self._partitions)

    @property
    def replaces_partitions(self) -> bool:
        """Whether an overwrite retains the partitions that get no rows."""
        return self._by_partition

    def compact(self, target: int) -> StageReport:
        """Merge small files."""
        if self._schema is None:
            return StageReport("nothing", "nothing was written")
        sink = self._sink
        compaction = compact(
            self._spark, self._staging, sink.format, self._schema, sink.partition_columns, sink.options, target
        )
        return report(compaction, target)

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies to every written partition, after all its files have become visible."""
        for folder in self._partitions:
            values = partition_values(folder)
            partition = CommittedPartition(self._spark, f"{self._named}/{folder}", values, self._sink.table)
            for name, policy in policies:
                try:
                    policy(partition)
                except Exception as error:
                    raise SinkError.partition_commit(name, str(partition), str(self._target), error) from error
        names = ", ".join(name for name, _ in policies) or "the catalogue knows them"
        return StageReport(show_count(len(self._partitions), "partition"), f"all their files are visible: {names}")

    def prepare(self) -> Prepared:
        """Plan the moves from the staging folder to the target.

        Called again once other jobs see the journal, as they may have changed the target. Meanwhile, the staging folder
        changes only by tokens that other jobs have written.
        """
        staging, target, path = self._staging, self._target, str(self._target)
        if self._skip:
            return PreparedFiles(path, str(staging), ())
        listed = self._files
        if listed is None and self._of_table and self._by_partition:
            staging.child(MARKER).delete()
        files = sorted(file for file, _ in staging.files_below(unread=True)) if listed is None else listed
        self._partitions = sorted({file.rpartition("/")[0] for file in files} - {""})
        token = None if self._sink.token is None else self._token(self._sink.token, files)
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
            marked = tuple(name for name in self._partitions if existing.has(f"{name}/{MARKER}"))
            return self._added(files, token, existing, marked=marked)
        if self._sink.mode != "overwrite":
            raise SinkError.exists(self._sink.path)
        existing = _Listing(target)
        if not target.renames_whole or (self._is_volume and not self._by_partition):
            owned = tuple(self._partitions) if self._by_partition else ("",)
            return self._added(files, token, existing, away=self._replaced_files(), owned=owned)
        if self._by_partition:
            beside = self._beside(token)
            new_folders = _missing([name.rpartition("/")[0] for name in (*beside, *self._partitions)], existing)
            return PreparedFolders(path, str(staging), tuple(self._partitions), new_folders, beside)
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
        tokens, marker = (
            tuple(name for name in beside if (name == MARKER) is selects_marker) for selects_marker in (False, True)
        )
        names = (*tokens, *files, *marker)
        return PreparedFiles(str(self._target), str(self._staging), names, new_folders, marked, away, owned)

    def _marked(self) -> tuple[str, ...]:
        """Return the written partitions that have a marker in the target."""
        return tuple(name for name in self._partitions if self._target.child(f"{name}/{MARKER}").exists())

    def _replaced_files(self) -> tuple[str, ...]:
        """Return the files that an overwrite replaces, after the markers of their partitions."""
        if not self._by_partition:
            return tuple(sorted(file for file, _ in self._target.files_below(unread=True)))
        existing = [name for name in self._partitions if self._target.child(name).exists()]
        files = (file for name in existing for file, _ in self._target.child(name).files_below(f"{name}/", unread=True))
        return (*(f"{name}/{MARKER}" for name in self._marked()), *sorted(files))

    def _token(self, token: str, files: Sequence[str]) -> str:
        if has_token(self._target, token):
            raise SinkError(
                f"another run has written {token} to {self._target} meanwhile", hint="nothing is left to do"
            )
        return write_token(self._staging, token, files)

    def _beside(self, token: str | None) -> tuple[str, ...]:
        """Return the token file and the marker that are added to an existing target."""
        needs_marker = self._staging.child(MARKER).exists() and not self._target.child(MARKER).exists()
        return (() if token is None else (token,)) + ((MARKER,) if needs_marker else ())

    def abort(self) -> None:
        """Remove the staging folder."""
        self._staging.delete()

    def refresh(self) -> None:
        """Invalidate cached readers of the folder, as Spark does after a write."""
        if self._skip:
            return
        for path in sorted({str(self._target), str(self._named)}):
            try:
                self._spark.catalog.refreshByPath(path)
            except Exception:
                log.warning("cached readers of %s could not be refreshed", path, exc_info=True)


def _skip_reason(sink: FileSink, target: Folder, *, is_committed: bool) -> str | None:
    if is_committed:
        return already_written(str(sink.token))
    return "the folder exists, and the mode is ignore" if sink.mode == "ignore" and target.exists() else None


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
            self._names[above] = self._names_in(self._folder.child(above) if above else self._folder)
        return name in self._names[above]

    @staticmethod
    def _names_in(folder: Folder) -> set[str]:
        try:
            return {name for name, _, _ in folder.entries()}
        except Exception:
            if folder.exists():
                raise
            return set()  # another job has just moved it aside


def _missing(folders: Iterable[str], existing: _Listing | None) -> tuple[str, ...]:
    """Return the folders, including their parents, that a target lacks; `existing` is None if it does not exist itself.

    Folders for tokens are always included.
    """
    needed = set() if existing is not None else {""}
    for folder in set(folders) - {""}:
        parts = folder.split("/")
        needed |= {"/".join(parts[: depth + 1]) for depth in range(len(parts))}
    return tuple(sorted(name for name in needed if existing is None or name == TOKENS or not existing.has(name)))
