"""Change of the number of key groups of a checkpoint: stage the new state, check it, then publish it.

The checkpoint does not change until the new state is complete and checked. The rescale becomes a batch that reads no
data. Its offsets with the new number are published first (from then on Spark refuses to start the query), then its
state, and last its commit. Before Spark 4.2 a `Barrier` exists during publication. If a process dies in between, its
journal lets another process finish or undo the rescale.
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
from penstock.state.journal import FOLDER, STAGED, Journal, Phase, forget, record
from penstock.state.preflight import open_stores
from penstock.state.rewrite_methods import RewriteMethod

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import Folder
    from penstock.spark.state.state_store import StateRewrite
    from penstock.state.preflight import RescalePlan, StorePlan

log = logging.getLogger("penstock.state")

TEXT = (
    b"Penstock has put a rescale of this query half in place: finish it with the same `penstock state rescale`, "
    b"or undo it with --abort"
)


class Barrier:
    """Keeps older releases of Spark from starting a query while its rescale is partly published.

    Since 4.2 Spark refuses to start a query whose newest batch has another number of key groups and is not done. Older
    releases would run that batch on the wrong key groups. For them, the log of offsets gets another entry that they
    cannot parse: they refuse to start, and cite its first line.

    If the release of Spark needs no barrier, the methods do nothing.
    """

    def __init__(self, checkpoint: Checkpoint, journal: Journal) -> None:
        self._file = checkpoint.folder.child(f"offsets/{journal.next_batch + 1}")
        self._is_needed = journal.barrier

    def create(self) -> None:
        """Write the entry, unless the query has that batch already."""
        if self._is_needed:
            self._file.write(TEXT)

    def exists(self) -> bool:
        """Whether the entry exists."""
        return self._is_needed and self._file.exists() and self._file.read() == TEXT

    def remove(self) -> None:
        """Remove the entry if it exists."""
        if self.exists():
            self._file.delete()


OnProgress = Callable[[int, int, str], None]
"""Called with the number of finished steps, the number of all steps, and the next step."""
_TASKS_TIMEOUT = 30.0
"""Seconds to wait until the other tasks of a failed stage have ended."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The rewrite of a store."""

    operator: int
    name: str
    store: str
    method: str
    reason: str
    rows: int
    largest_group: int
    """Rows of the largest new key group."""
    seconds: float


@dataclass(frozen=True, slots=True)
class RescaleReport:
    """The report of a rescale."""

    location: str
    batch: int
    """The batch that the rescale became."""
    old: int
    new: int
    stores: tuple[StoreReport, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return asdict(self)


class Rescale:
    """A rescale of a checkpoint; run it while holding `penstock.state.journal`."""

    def __init__(self, bridge: Bridge, plan: RescalePlan, on_progress: OnProgress) -> None:
        self._bridge = bridge
        self._plan = plan
        self._report_progress = on_progress
        self._checkpoint = Checkpoint(bridge, plan.location)
        self._staged = _staging_folder(self._checkpoint)
        self._next = plan.batch + 1
        self._stores = open_stores(bridge, self._checkpoint, plan.batch)

    def run(self) -> RescaleReport:
        """Rewrite the state and publish it.

        Raise `StateError` if the rescale failed. The checkpoint is unchanged, unless the message says otherwise.
        """
        start, steps = time.monotonic(), len(self._plan.stores) + 1
        journal = Journal(self._plan.batch, self._plan.assignment.old, self._plan.assignment.new)
        doing = "creating a folder for the new state"
        try:
            discard(self._checkpoint.folder)
            self._staged.make()
            journal.save(self._checkpoint.folder)
            self._prepare()
            rewrite = self._stores.rewrite(
                self._plan.format_version, self._plan.location, self._plan.batch, str(self._staged)
            )
            reports, ids = [], {}
            for done, plan in enumerate(self._plan.stores):
                doing = f"writing operator {plan.store.operator} ({plan.operator_name}), store {plan.store.name}"
                self._report_progress(done, steps, doing)
                report, ids[plan.store.operator, plan.store.name] = self._write(rewrite, plan)
                reports.append(report)
            doing = "writing the batch's commit"
            self._commit_staged(ids)
            doing = "checking the new state"
            reports = [self._check(plan, report) for plan, report in zip(self._plan.stores, reports, strict=True)]
            files, replaced = self._changes()
            barrier = not has_offline_tools(self._bridge)
            journal = replace(journal, phase=Phase.PUBLISHING, files=files, replaced=replaced, barrier=barrier)
            journal.save(self._checkpoint.folder)
        except PenstockError:
            try_discard(self._checkpoint.folder)
            raise
        except BaseException as error:
            wait_for_tasks(self._bridge, _TASKS_TIMEOUT)  # they would write into the folders that are removed below
            try_discard(self._checkpoint.folder)
            if isinstance(error, Exception):
                raise StateError.failed(self._plan.location, doing, root_cause(error)) from error
            raise
        self._report_progress(steps - 1, steps, "putting it in place")
        publish(self._checkpoint, journal)
        self._report_progress(steps, steps, "done")
        seconds = time.monotonic() - start
        return RescaleReport(self._plan.location, self._next, journal.old, journal.new, tuple(reports), seconds)

    def _prepare(self) -> None:
        """Stage a checkpoint that is complete except for its state."""
        batch = self._plan.batch
        for name in ("offsets", "commits"):
            self._staged.child(name).make()
        for name in ("metadata", f"offsets/{batch}", f"commits/{batch}"):
            self._checkpoint.folder.child(name).copy_to(self._staged.child(name))
        offsets = self._checkpoint.offsets(batch).with_max_parallelism(self._plan.assignment.new)
        self._staged.child(f"offsets/{self._next}").write(str(offsets).encode())
        for operator in self._checkpoint.operators:
            path = f"state/{operator.number}"
            self._staged.child(path).make()
            schemas = [f"{Checkpoint.group_path(operator.number, 0, store)}/_metadata" for store in operator.stores]
            for hidden in (f"{path}/_metadata", f"{path}/_stateSchema", *schemas):
                if self._checkpoint.folder.child(hidden).exists():
                    self._staged.child(hidden).parent.make()
                    self._checkpoint.folder.child(hidden).copy_to(self._staged.child(hidden))

    def _write(self, rewrite: StateRewrite, plan: StorePlan) -> tuple[StoreReport, tuple[str, ...]]:
        assignment, store = self._plan.assignment, plan.store
        start = time.monotonic()
        method, reason = plan.method, plan.reason
        units = [(unit.reads, unit.writes) for unit in assignment.work_units(cluster_cores(self._bridge))]
        if not store.keyed:
            units = [((0,), (0,))]
        if isinstance(rewrite, RowRewriter):
            written = rewrite.rewrite_rows(store, assignment.old, assignment.new, units)
        elif method is RewriteMethod.FILES:
            try:
                written = rewrite.move_files(store, assignment.new, units)
            except Exception as error:
                # The driver sees an exception of a task only as text. Other exceptions are real failures.
                if "UnsupportedOperationException" not in str(error):
                    raise
                wait_for_tasks(self._bridge, _TASKS_TIMEOUT)  # they would write into the same folders as the fallback
                self._discard(store.operator, store.name)
                method = RewriteMethod.SHUFFLE if assignment.change == "regroup" else RewriteMethod.ROWS
                reason = f"not by files: {root_cause(error)}"
        if method is not RewriteMethod.FILES and not isinstance(rewrite, RowRewriter):
            written = rewrite.put_rows(store, assignment.old, assignment.new, shuffle=method is RewriteMethod.SHUFFLE)
        rows = -1 if written.rows_read is None else written.rows_read
        seconds = time.monotonic() - start
        report = StoreReport(store.operator, plan.operator_name, store.name, str(method), reason, rows, 0, seconds)
        return report, written.checkpoint_ids

    def _discard(self, operator: int, store: str) -> None:
        for group in range(self._plan.assignment.new):
            folder = self._staged.child(Checkpoint.group_path(operator, group, store))
            for name, _, _ in folder.entries() if folder.exists() else []:
                if not name.startswith("_"):
                    folder.child(name).delete()

    def _commit_staged(self, ids: dict[tuple[int, str], tuple[str, ...]]) -> None:
        """Write the commit of the new batch, with the unique ids that format version 2 needs."""
        by_group: dict[int, list[list[str]]] = {}
        for plan in self._plan.stores:
            store_ids = ids[plan.store.operator, plan.store.name]
            groups = by_group.setdefault(plan.store.operator, [[] for _ in store_ids])
            for group, identifier in zip(groups, store_ids, strict=True):
                group.append(identifier)
        entry = self._checkpoint.commit(self._plan.batch).with_checkpoint_ids(by_group)
        self._staged.child(f"commits/{self._next}").write(str(entry).encode())

    def _check(self, plan: StorePlan, report: StoreReport) -> StoreReport:
        """Check that the new state has as many rows as before, each in its own key group; return final counts."""
        now = self._stores.count(str(self._staged), self._next, plan.store, self._plan.assignment.new)
        before = report.rows
        if before < 0:
            counts = self._stores.count(self._plan.location, self._plan.batch, plan.store, self._plan.assignment.old)
            before = sum(count.rows for count in counts)
        rows, foreign = sum(count.rows for count in now), sum(count.foreign for count in now)
        if rows != before or foreign:
            counts_text = f"operator {report.operator}, store {report.store}: {before:,} rows before, {rows:,} after"
            cause = f"{counts_text}, {foreign:,} in a wrong key group"
            raise StateError.failed(self._plan.location, "the check", cause)
        return replace(report, rows=rows, largest_group=max((count.rows for count in now), default=0))

    def _changes(self) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the files to move, and the old text of the files to replace."""
        files, replaced = [], {}
        for operator in self._checkpoint.operators:
            entry = operator.entry.with_max_parallelism(self._plan.assignment.new)
            if operator.path.endswith("/metadata"):
                replaced[operator.path] = self._checkpoint.folder.child(operator.path).read().decode()
                path = operator.path
            else:
                path = f"{operator.path.rpartition('/')[0]}/{self._next}"
                files.append(path)
            self._staged.child(path).delete()
            self._staged.child(path).write(str(entry).encode())
            for group in range(self._plan.assignment.new):
                for store in operator.stores:
                    folder = Checkpoint.group_path(operator.number, group, store)
                    if self._staged.child(folder).exists():
                        files += [f"{folder}/{name}" for name in _state_files(self._staged.child(folder))]
        return tuple(files), replaced


def _state_files(folder: Folder, under: str = "") -> list[str]:
    """Return the files of a key group without the schema and the checksums, which move with their files."""
    files = []
    for name, is_folder, _ in folder.entries():
        if is_folder and name == "SSTs":
            files += _state_files(folder.child(name), f"{under}{name}/")
        elif not is_folder and not name.startswith("."):
            files.append(under + name)
    return files


def publish(checkpoint: Checkpoint, journal: Journal) -> None:
    """Move a staged rescale into the checkpoint. The call can be repeated after it was interrupted at any step.

    Raise `StateError` if the query ran in the meantime; the checkpoint is left unchanged. Or if a file cannot be moved;
    another call continues from there.
    """
    try:
        done = _outcome(checkpoint, journal)
        if done is None:
            done = _move_into_checkpoint(checkpoint, journal)
    except Exception as error:
        raise StateError.interrupted(checkpoint.location, journal.old, journal.new, root_cause(error)) from error
    try_discard(checkpoint.folder)
    if not done:
        cause = f"the query has started batch {journal.next_batch}"
        raise StateError.failed(checkpoint.location, "putting it in place", cause)


def is_over(checkpoint: Checkpoint, journal: Journal) -> bool:
    """Whether a rescale has ended, published or overtaken by the query, so that only its staged files are left."""
    return journal.phase is not Phase.STAGING and _outcome(checkpoint, journal) is not None


def _outcome(checkpoint: Checkpoint, journal: Journal) -> bool | None:
    """Return True if the rescale's batch is done, False if the query ran its own batch instead, None if neither.

    The newest commit decides, because Spark removes the commits of old batches.
    """
    latest = checkpoint.latest("commits")
    if latest is None or latest <= journal.batch or Barrier(checkpoint, journal).exists():
        return None
    return checkpoint.offsets(latest).max_parallelism == journal.new


def _staging_folder(checkpoint: Checkpoint) -> Folder:
    return checkpoint.folder.child(FOLDER).child(STAGED)


def _move_into_checkpoint(checkpoint: Checkpoint, journal: Journal) -> bool:
    """Make the rescale the next batch; return False, and change nothing, if the query has begun that batch itself."""
    folder, staged, following = checkpoint.folder, _staging_folder(checkpoint), journal.next_batch
    offsets = staged.child(f"offsets/{following}").read()
    entry = folder.child(f"offsets/{following}")
    barrier = Barrier(checkpoint, journal)
    barrier.create()
    if not entry.write(offsets) and entry.read() != offsets:
        barrier.remove()
        return False
    for file in journal.files:
        _move(staged.child(file), folder.child(file))
    for file in journal.replaced:
        folder.child(file).write(staged.child(file).read(), overwrite=True)
    record(folder, journal)
    folder.child(f"commits/{following}").write(staged.child(f"commits/{following}").read())
    barrier.remove()
    return True


def _move(source: Folder, target: Folder) -> None:
    """Move a file, unless it was moved before."""
    if source.exists():
        target.parent.make()
        target.delete()
        if source.move_to(target):
            return
    if source.exists() or not target.exists():
        raise OSError(f"{source} could not be moved to {target}")


def undo(checkpoint: Checkpoint, journal: Journal) -> None:
    """Remove the files that `publish` has moved so far. The call can be repeated after it was interrupted at any step.

    Raise `StateError` if the rescale is complete. Or if a file cannot be removed; another call continues from there.
    """
    folder = checkpoint.folder
    try:
        done = False if journal.phase is Phase.STAGING else _outcome(checkpoint, journal)
        if done is None:
            _restore_checkpoint(checkpoint, journal)
        if not done:
            discard(folder)
    except Exception as error:
        raise StateError.interrupted(checkpoint.location, journal.old, journal.new, root_cause(error)) from error
    if done:
        try_discard(folder)
        raise StateError.complete(checkpoint.location, journal.old, journal.new)


def _restore_checkpoint(checkpoint: Checkpoint, journal: Journal) -> None:
    folder, staged, following = checkpoint.folder, _staging_folder(checkpoint), journal.next_batch
    entry = folder.child(f"offsets/{following}")
    barrier = Barrier(checkpoint, journal)
    if entry.exists() and entry.read() == staged.child(f"offsets/{following}").read():
        # From here on the rescale can only be undone, because removed files cannot be published again.
        replace(journal, phase=Phase.ABORTING).save(folder)
        for file in journal.files:
            folder.child(file).delete()  # may exist twice, also staged, if the file system renames by copying
        for file, text in journal.replaced.items():
            folder.child(file).write(text.encode(), overwrite=True)
        forget(folder, journal)
        if barrier.exists():
            folder.child(f"commits/{following}").delete()  # has no effect while the barrier exists
        entry.delete()
    barrier.remove()


def discard(folder: Folder) -> None:
    """Remove the staged files of a rescale; the journal first, because the others are useless without it."""
    Journal.forget(folder)
    folder.child(FOLDER).delete()


def try_discard(folder: Folder) -> None:
    """Remove the staged files of a rescale that has ended; only log a warning if the file system refuses."""
    try:
        discard(folder)
    except Exception as error:  # noqa: BLE001 - depends on the file system
        log.warning(
            "the staging folder of a rescale of %s is not removed yet (%s); the next rescale, --abort or start_query "
            "removes it",
            folder,
            root_cause(error),
        )
