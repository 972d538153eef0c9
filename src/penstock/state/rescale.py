"""Change of a checkpoint's number of key groups (state partitions): stage the new state, check it, then publish it.

The checkpoint does not change until the new state is complete and checked. The rescale adds a batch that reads no data
to the query's logs. The offsets of this batch, with the new number of key groups, are published first, then the state,
and last the batch's commit. Until the commit, Spark 4.2 and later refuse to start the query; for older releases, a
`StartBlocker` prevents the start. If the process dies, the journal lets another process finish or undo the rescale.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, StateError
from penstock.spark.bridge.jvm import root_cause
from penstock.spark.run.jobs import cluster_cores, wait_for_tasks
from penstock.spark.state.state_store import RowRewriter, has_offline_tools
from penstock.state.checkpoint import Checkpoint
from penstock.state.journal import STAGED_CHECKPOINT, STAGING_FOLDER, Journal, Phase, record_rescale, remove_record
from penstock.state.preflight import open_state_session
from penstock.state.rewrite_methods import RewriteMethod

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import HadoopPath
    from penstock.spark.state.state_store import StateRewrite
    from penstock.state.preflight import RescalePlan, StorePlan

log = logging.getLogger("penstock.state")

_BLOCKER_TEXT = (
    b"Penstock has put a rescale of this query half in place: finish it with the same `penstock state rescale`, "
    b"or undo it with --abort"
)
"""The text of a `StartBlocker`'s entry. The entry is recognized by its text, so the text must not change."""


class StartBlocker:
    """Keeps Spark before 4.2 from starting a query while a rescale of its state is partly published.

    Since 4.2, Spark refuses to start a query whose newest batch is unfinished and changes the number of key groups.
    Older releases would run that batch on the wrong key groups. For them, the blocker adds an entry to the offset log
    that they cannot parse: they refuse to start, and quote the entry. For newer releases, the methods do nothing.
    """

    def __init__(self, checkpoint: Checkpoint, journal: Journal) -> None:
        self._file = checkpoint.folder.child(f"offsets/{journal.next_batch + 1}")
        self._is_needed = journal.barrier

    def create(self) -> None:
        """Write the entry, unless the offset log already has an entry for the same batch."""
        if self._is_needed:
            self._file.write(_BLOCKER_TEXT)

    def exists(self) -> bool:
        """Whether the entry exists."""
        return self._is_needed and self._file.exists() and self._file.read() == _BLOCKER_TEXT

    def remove(self) -> None:
        """Remove the entry if it exists."""
        if self.exists():
            self._file.delete()


OnProgress = Callable[[int, int, str], None]
"""Called with the number of finished steps, the number of all steps, and a description of the next step."""
_TASKS_TIMEOUT = 30.0
"""Seconds to wait until the other tasks of a failed stage have ended."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The rewrite of a store; `operator` and `name` identify its operator, and `reason` is the reason for `method`."""

    operator: int
    name: str
    store: str
    method: str
    reason: str
    rows: int
    largest_group: int  # number of rows of the largest new key group
    seconds: float


@dataclass(frozen=True, slots=True)
class RescaleReport:
    """The report of a rescale; `old` and `new` are the numbers of key groups."""

    location: str
    batch: int
    """The batch that the rescale added to the query's logs."""
    old: int
    new: int
    stores: tuple[StoreReport, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


class Rescale:
    """A rescale of a checkpoint; run it while holding `penstock.state.journal.rescale_lock`."""

    def __init__(self, bridge: Bridge, plan: RescalePlan, on_progress: OnProgress) -> None:
        self._bridge = bridge
        self._plan = plan
        self._report_progress = on_progress
        self._checkpoint = Checkpoint(bridge, plan.location)
        self._staged_checkpoint = _staged_checkpoint(self._checkpoint)
        self._next_batch = plan.batch + 1
        self._session = open_state_session(bridge, self._checkpoint, plan.batch)

    def run(self) -> RescaleReport:
        """Rewrite the state and publish it.

        Raise `StateError` if the rescale failed. The checkpoint is then unchanged, unless the message says otherwise.
        """
        start, steps = time.monotonic(), len(self._plan.stores) + 1
        journal = Journal(self._plan.batch, self._plan.assignment.old, self._plan.assignment.new)
        step = "creating a folder for the new state"
        try:
            discard_staging(self._checkpoint.folder)
            self._staged_checkpoint.make()
            journal.save(self._checkpoint.folder)
            self._stage_logs()
            rewrite = self._session.rewrite(
                self._plan.format_version, self._plan.location, self._plan.batch, str(self._staged_checkpoint)
            )
            reports, checkpoint_ids = [], {}
            for done, store_plan in enumerate(self._plan.stores):
                store = store_plan.store
                step = f"writing operator {store.operator} ({store_plan.operator_name}), store {store.name}"
                self._report_progress(done, steps, step)
                report, checkpoint_ids[store.operator, store.name] = self._rewrite_store(rewrite, store_plan)
                reports.append(report)
            step = "writing the batch's commit"
            self._stage_commit(checkpoint_ids)
            step = "checking the new state"
            reports = list(map(self._check_store, self._plan.stores, reports))
            files, replaced = self._stage_metadata()
            needs_blocker = not has_offline_tools(self._bridge)
            journal = replace(journal, phase=Phase.PUBLISHING, files=files, replaced=replaced, barrier=needs_blocker)
            journal.save(self._checkpoint.folder)
        except PenstockError:
            try_discard_staging(self._checkpoint.folder)
            raise
        except BaseException as error:
            wait_for_tasks(self._bridge, _TASKS_TIMEOUT)  # tasks could still write into the folders removed next
            try_discard_staging(self._checkpoint.folder)
            if isinstance(error, Exception):
                raise StateError.rescale_failed(self._plan.location, step, root_cause(error)) from error
            raise
        self._report_progress(steps - 1, steps, "publishing the new state")
        publish(self._checkpoint, journal)
        self._report_progress(steps, steps, "done")
        seconds = time.monotonic() - start
        return RescaleReport(self._plan.location, self._next_batch, journal.old, journal.new, tuple(reports), seconds)

    def _stage_logs(self) -> None:
        """Stage the logs, the metadata and the schemas: a checkpoint that lacks only the new state and its commit."""
        batch = self._plan.batch
        for name in ("offsets", "commits"):
            self._staged_checkpoint.child(name).make()
        for name in ("metadata", f"offsets/{batch}", f"commits/{batch}"):
            self._checkpoint.folder.child(name).copy_to(self._staged_checkpoint.child(name))
        offsets = self._checkpoint.offset_entry(batch).with_max_parallelism(self._plan.assignment.new)
        self._staged_checkpoint.child(f"offsets/{self._next_batch}").write(str(offsets).encode())
        for operator in self._checkpoint.operators:
            path, stores = f"state/{operator.number}", operator.metadata.stores
            self._staged_checkpoint.child(path).make()
            schemas = [f"{Checkpoint.group_path(operator.number, 0, store)}/_metadata" for store in stores]
            for metadata_path in (f"{path}/_metadata", f"{path}/_stateSchema", *schemas):
                if self._checkpoint.folder.child(metadata_path).exists():
                    self._staged_checkpoint.child(metadata_path).parent.make()
                    self._checkpoint.folder.child(metadata_path).copy_to(self._staged_checkpoint.child(metadata_path))

    def _rewrite_store(self, rewrite: StateRewrite, plan: StorePlan) -> tuple[StoreReport, tuple[str, ...]]:
        """Write a store's new state; return a report with preliminary counts, and the ids of the new state versions."""
        assignment, store = self._plan.assignment, plan.store
        start = time.monotonic()
        method, reason = plan.method, plan.reason
        work_units = [(unit.reads, unit.writes) for unit in assignment.work_units(cluster_cores(self._bridge))]
        if not store.is_keyed:
            work_units = [((0,), (0,))]  # all rows are in group 0
        if isinstance(rewrite, RowRewriter):
            rewritten = rewrite.rewrite_rows(store, assignment.old, assignment.new, work_units)
        elif method is RewriteMethod.FILES:
            try:
                rewritten = rewrite.move_files(store, assignment.new, work_units)
            except Exception as error:
                # A task raises this exception if bytes cannot be copied. The driver sees it only as text.
                if "UnsupportedOperationException" not in str(error):
                    raise
                wait_for_tasks(self._bridge, _TASKS_TIMEOUT)  # these tasks write into the same folders as the fallback
                self._discard_store(store.operator, store.name)
                method = RewriteMethod.SHUFFLE if assignment.change == "regroup" else RewriteMethod.ROWS
                reason = f"its sorted bytes cannot be copied: {root_cause(error)}"
        if method is not RewriteMethod.FILES and not isinstance(rewrite, RowRewriter):
            shuffle = method is RewriteMethod.SHUFFLE
            rewritten = rewrite.write_rows(store, assignment.old, assignment.new, shuffle=shuffle)
        rows = -1 if rewritten.rows_read is None else rewritten.rows_read  # -1: not counted yet, see `_check_store`
        seconds = time.monotonic() - start
        report = StoreReport(store.operator, plan.operator_name, store.name, str(method), reason, rows, 0, seconds)
        return report, rewritten.checkpoint_ids

    def _discard_store(self, operator: int, store: str) -> None:
        for group in range(self._plan.assignment.new):
            folder = self._staged_checkpoint.child(Checkpoint.group_path(operator, group, store))
            for name, _, _ in folder.entries() if folder.exists() else []:
                if not name.startswith("_"):  # the schema stays
                    folder.child(name).delete()

    def _stage_commit(self, ids: dict[tuple[int, str], tuple[str, ...]]) -> None:
        """Stage the commit of the new batch; `ids` has the ids of the new state versions, by operator and store."""
        ids_by_operator: dict[int, list[list[str]]] = {}  # for each key group of the operator, the ids of its stores
        for plan in self._plan.stores:
            store_ids = ids[plan.store.operator, plan.store.name]
            groups = ids_by_operator.setdefault(plan.store.operator, [[] for _ in store_ids])
            for group, identifier in zip(groups, store_ids, strict=True):
                group.append(identifier)
        entry = self._checkpoint.commit_entry(self._plan.batch).with_checkpoint_ids(ids_by_operator)
        self._staged_checkpoint.child(f"commits/{self._next_batch}").write(str(entry).encode())

    def _check_store(self, plan: StorePlan, report: StoreReport) -> StoreReport:
        """Check that no row is missing or in a wrong key group; return the report with the final counts."""
        staged, new_groups = str(self._staged_checkpoint), self._plan.assignment.new
        counts = self._session.count(staged, self._next_batch, plan.store, new_groups)
        rows_before = report.rows
        if rows_before < 0:
            old_groups = self._plan.assignment.old
            old_counts = self._session.count(self._plan.location, self._plan.batch, plan.store, old_groups)
            rows_before = sum(count.rows for count in old_counts)
        rows, misplaced = sum(count.rows for count in counts), sum(count.misplaced for count in counts)
        if rows != rows_before or misplaced:
            cause = f"operator {report.operator}, store {report.store}: {rows_before:,} rows before, {rows:,} after"
            cause += f", {misplaced:,} in a wrong key group"
            raise StateError.rescale_failed(self._plan.location, "the check", cause)
        return replace(report, rows=rows, largest_group=max((count.rows for count in counts), default=0))

    def _stage_metadata(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Stage the operators' metadata; return the files to move (also state files), and replaced files' old texts."""
        files, replaced = [], {}
        for operator in self._checkpoint.operators:
            metadata = operator.metadata.with_max_parallelism(self._plan.assignment.new)
            if operator.path.endswith("/metadata"):  # a single file, which is replaced
                replaced[operator.path] = self._checkpoint.folder.child(operator.path).read().decode()
                path = operator.path
            else:
                path = f"{operator.path.rpartition('/')[0]}/{self._next_batch}"
                files.append(path)
            self._staged_checkpoint.child(path).delete()
            self._staged_checkpoint.child(path).write(str(metadata).encode())
            for group in range(self._plan.assignment.new):
                for store in operator.metadata.stores:
                    folder = Checkpoint.group_path(operator.number, group, store)
                    if self._staged_checkpoint.child(folder).exists():
                        files += [f"{folder}/{name}" for name in _state_files(self._staged_checkpoint.child(folder))]
        return tuple(files), replaced


def _state_files(folder: HadoopPath, prefix: str = "") -> list[str]:
    """Return the state files of a folder, not its schema or checksum files; a checksum file moves with its file."""
    files = []
    for name, is_folder, _ in folder.entries():
        if is_folder and name == "SSTs":
            files += _state_files(folder.child(name), f"{prefix}{name}/")
        elif not is_folder and not name.startswith("."):
            files.append(prefix + name)
    return files


def publish(checkpoint: Checkpoint, journal: Journal) -> None:
    """Move a staged rescale into the checkpoint. The call can be repeated after it was interrupted at any step.

    Raise `StateError` if the query ran in the meantime (the checkpoint is unchanged), or if a file cannot be moved
    (another call continues from there).
    """
    location = checkpoint.location
    try:
        is_published = _is_published(checkpoint, journal)
        if is_published is None:
            is_published = _move_into_checkpoint(checkpoint, journal)
    except Exception as error:
        raise StateError.rescale_interrupted(location, journal.old, journal.new, root_cause(error)) from error
    try_discard_staging(checkpoint.folder)
    if not is_published:
        cause = f"the query has started batch {journal.next_batch}"
        raise StateError.rescale_failed(location, "publishing the new state", cause)


def rescale_ended(checkpoint: Checkpoint, journal: Journal) -> bool:
    """Whether a rescale is published, or the query ran another batch instead, so that only staged files remain."""
    return journal.phase is not Phase.STAGING and _is_published(checkpoint, journal) is not None


def _is_published(checkpoint: Checkpoint, journal: Journal) -> bool | None:
    """Return True if the rescale's batch is done, False if the query ran its own batch instead, None if neither.

    The newest commit decides, as Spark removes old commits; while a `StartBlocker` exists, the rescale is incomplete.
    """
    latest = checkpoint.latest_batch("commits")
    if latest is None or latest <= journal.batch or StartBlocker(checkpoint, journal).exists():
        return None
    return checkpoint.offset_entry(latest).max_parallelism == journal.new


def _staged_checkpoint(checkpoint: Checkpoint) -> HadoopPath:
    return checkpoint.folder.child(STAGING_FOLDER).child(STAGED_CHECKPOINT)


def _move_into_checkpoint(checkpoint: Checkpoint, journal: Journal) -> bool:
    """Make the rescale the next batch; return False, and change nothing, if the query has begun a batch of its own."""
    folder, staged, next_batch = checkpoint.folder, _staged_checkpoint(checkpoint), journal.next_batch
    offsets = staged.child(f"offsets/{next_batch}").read()
    offset_file = folder.child(f"offsets/{next_batch}")
    blocker = StartBlocker(checkpoint, journal)
    blocker.create()
    if not offset_file.write(offsets) and offset_file.read() != offsets:
        blocker.remove()
        return False
    for file in journal.files:
        _move(staged.child(file), folder.child(file))
    for file in journal.replaced:
        folder.child(file).write(staged.child(file).read(), overwrite=True)
    record_rescale(folder, journal)
    folder.child(f"commits/{next_batch}").write(staged.child(f"commits/{next_batch}").read())
    blocker.remove()
    return True


def _move(source: HadoopPath, target: HadoopPath) -> None:
    """Move a file, unless it was moved before."""
    if source.exists():
        target.parent.make()
        target.delete()
        if source.move_to(target):
            return
    if source.exists() or not target.exists():
        raise OSError(f"{source} could not be moved to {target}")


def undo(checkpoint: Checkpoint, journal: Journal) -> None:
    """Undo what `publish` has done so far, and remove the staged files. The call can be repeated after an interruption.

    Raise `StateError` if the rescale is complete, or if a file cannot be removed (another call continues from there).
    """
    folder = checkpoint.folder
    try:
        is_published = False if journal.phase is Phase.STAGING else _is_published(checkpoint, journal)
        if is_published is None:  # some files of the rescale may be in the checkpoint
            _restore_checkpoint(checkpoint, journal)
        if not is_published:
            discard_staging(folder)
    except Exception as error:
        raise StateError.rescale_interrupted(str(folder), journal.old, journal.new, root_cause(error)) from error
    if is_published:
        try_discard_staging(folder)
        raise StateError(
            f"the rescale of {folder} to {journal.new} key groups is complete and cannot be aborted",
            hint=f"rescale it to {journal.old} to go back",
        )


def _restore_checkpoint(checkpoint: Checkpoint, journal: Journal) -> None:
    folder, staged, next_batch = checkpoint.folder, _staged_checkpoint(checkpoint), journal.next_batch
    offset_file = folder.child(f"offsets/{next_batch}")
    blocker = StartBlocker(checkpoint, journal)
    if offset_file.exists() and offset_file.read() == staged.child(f"offsets/{next_batch}").read():
        # The offsets were published first. From here on, only undoing is possible: removed files cannot be moved again.
        replace(journal, phase=Phase.ABORTING).save(folder)
        for file in journal.files:
            folder.child(file).delete()  # even if it is staged too: some file systems rename by copying
        for file, text in journal.replaced.items():
            folder.child(file).write(text.encode(), overwrite=True)
        remove_record(folder, journal)
        if blocker.exists():
            folder.child(f"commits/{next_batch}").delete()  # may exist, but is ineffective while the blocker exists
        offset_file.delete()
    blocker.remove()


def discard_staging(folder: HadoopPath) -> None:
    """Remove the staged files of a rescale; the journal first: without it, the other files have no effect."""
    Journal.delete(folder)
    folder.child(STAGING_FOLDER).delete()


def try_discard_staging(folder: HadoopPath) -> None:
    """Remove the staged files of a rescale that has ended; only log a warning if the file system refuses."""
    try:
        discard_staging(folder)
    except Exception as error:  # noqa: BLE001 - depends on the file system
        text = "the staging folder of %s is not removed yet (%s); the next rescale, --abort or start_query removes it"
        log.warning(text, folder, root_cause(error))
