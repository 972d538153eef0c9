"""The journal from which another process can finish or undo a rescale, the lock, and the records of past rescales.

The records of complete rescales show whether the logs of a query were rewound to a batch before a rescale. Users rewind
a query by removing the newest files of ``offsets`` and ``commits``. The files that a rescale has published stay, and
Spark uses them as the state of the batch that runs again: keys that moved to another group are lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from penstock.commit import Access
from penstock.commit.claims import hold_claim, holder_of
from penstock.commit.names import check_files
from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import HadoopPath
    from penstock.state.checkpoint import Checkpoint

STAGING_FOLDER = "_penstock_rescale"
"""The folder in a checkpoint with the files of a rescale until they are published."""
STAGED_CHECKPOINT = "checkpoint"
"""The staged checkpoint: the folder in `STAGING_FOLDER` with the new files of the checkpoint."""
RECORDS_FOLDER = "_penstock_rescales"
"""The folder in a checkpoint with the journals of complete rescales."""


class Phase(StrEnum):
    """The progress of a rescale."""

    STAGING = "staging"
    """The new state is written to the staging folder; the checkpoint is unchanged."""
    PUBLISHING = "publishing"
    """The new state is complete and checked; its files are moved into the checkpoint."""
    ABORTING = "aborting"
    """The published files are removed again."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A rescale in progress.

    Each phase has its own journal file, because an object store may have no version of a file while it is replaced.

    `batch` is the query's last batch before the rescale. `old` and `new` are the numbers of key groups. `files` are the
    files to move, with the same relative path in the staged checkpoint and in the checkpoint. `replaced` has the old
    texts of the checkpoint's replaced files, by path. `barrier` says whether a `penstock.state.rescale.StartBlocker`
    must keep Spark from starting the query while files are published. Field names are JSON keys and must not change.
    """

    batch: int
    old: int
    new: int
    phase: Phase = Phase.STAGING
    files: tuple[str, ...] = ()
    replaced: dict[str, str] = field(default_factory=dict)
    barrier: bool = False

    @classmethod
    def load(cls, checkpoint: HadoopPath) -> Self | None:
        """Return the journal of a checkpoint; None if no rescale is in progress."""
        for phase in reversed(Phase):
            file = _journal_file(checkpoint, phase)
            if file.exists():
                return cls.parse(file.read())
        return None

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Parse a journal; raise `StateError` if it names a file outside the checkpoint, which would be overwritten."""
        content = json.loads(text)
        try:
            check_files((*content["files"], *content["replaced"]))
        except ValueError as error:
            raise StateError.unreadable("the journal of a rescale", str(error)) from error
        return cls(**content | {"phase": Phase(content["phase"]), "files": tuple(content["files"])})

    @property
    def json_bytes(self) -> bytes:
        """The journal as JSON."""
        return json.dumps(asdict(self)).encode()

    @property
    def next_batch(self) -> int:
        """The number of the batch that the rescale adds to the query's logs."""
        return self.batch + 1

    def save(self, checkpoint: HadoopPath) -> None:
        """Write the journal atomically, unless there is a journal of the same phase."""
        _journal_file(checkpoint, self.phase).write(self.json_bytes)

    @staticmethod
    def delete(checkpoint: HadoopPath) -> None:
        """Delete the journal files; the newest phase last, so that `load` returns it even after an interruption."""
        for phase in Phase:
            _journal_file(checkpoint, phase).delete()


def _journal_file(checkpoint: HadoopPath, phase: Phase) -> HadoopPath:
    return checkpoint.child(STAGING_FOLDER).child(f"{phase}.json")


CLAIM_FILE = "_penstock_rescale.claim"
"""The lock file. It is not in the staging folder, which is removed while the lock is held."""


@contextmanager
def rescale_lock(bridge: Bridge, checkpoint: HadoopPath) -> Iterator[None]:
    """Hold the exclusive right to write, finish, undo or remove a rescale while the block runs.

    Acquire the lock before reading a journal, as another holder may write it. A lock whose holder has died can be
    acquired; see `penstock.commit.claims` for processes on other machines. Raise `StateError` if another process or
    thread holds the lock, or the checkpoint cannot be written to.
    """
    access, path = Access(bridge), str(checkpoint.child(CLAIM_FILE))
    with ExitStack() as stack:
        try:
            is_acquired = stack.enter_context(hold_claim(access, path))
            holder = None if is_acquired else holder_of(access, path)
        except Exception as error:
            message = f"{checkpoint} cannot be written to; nothing was done"
            raise StateError(message, cause=root_cause(error)) from error
        if not is_acquired:
            raise StateError(
                f"a rescale of {checkpoint}, or a start of its query, is under way; nothing was done",
                cause=f"{holder or 'another process'} works on it",
                hint="wait until it is done, or end that process; a process of another machine counts as dead a minute "
                f"after its last lease renewal (if that process id now belongs to another program, delete {path})",
            )
        yield


def record_rescale(checkpoint: HadoopPath, journal: Journal) -> None:
    """Record a published rescale, and remove the records of rescales whose batches are no longer in Spark's logs."""
    for past_rescale in _recorded_rescales(checkpoint):
        if not checkpoint.child(f"offsets/{past_rescale.next_batch}").exists():
            remove_record(checkpoint, past_rescale)
    checkpoint.child(RECORDS_FOLDER).make()
    _record_file(checkpoint, journal).write(journal.json_bytes, overwrite=True)


def remove_record(checkpoint: HadoopPath, journal: Journal) -> None:
    """Remove the record of a rescale, if it exists."""
    _record_file(checkpoint, journal).delete()
    checkpoint.child(RECORDS_FOLDER).remove_if_empty()


def check_not_rewound(checkpoint: Checkpoint) -> None:
    """Check that the logs of a query were not rewound to a batch before a rescale; raise `StateError` if they were."""
    for journal in _recorded_rescales(checkpoint.folder):
        if _is_rewound(checkpoint, journal):
            raise StateError.logs_rewound(checkpoint.location, journal.next_batch, journal.new)
        if _was_rerun(checkpoint, journal):
            batch = journal.next_batch
            cause = f"batch {batch} was run again after the rescale, so later state may lack keys"
            raise StateError.logs_rewound(checkpoint.location, batch, journal.new, cause)


def remove_rewound_rescales(checkpoint: Checkpoint) -> bool:
    """Undo rewound rescales, or only remove their records if their batches ran again; return whether there were any."""
    rewound = [
        journal
        for journal in _recorded_rescales(checkpoint.folder)
        if _is_rewound(checkpoint, journal) or _was_rerun(checkpoint, journal)
    ]
    for journal in reversed(rewound):
        if _is_rewound(checkpoint, journal):  # otherwise the batch ran again, and Spark may have replaced the files
            for file in journal.files:
                checkpoint.folder.child(file).delete()
            for file, text in journal.replaced.items():
                checkpoint.folder.child(file).write(text.encode(), overwrite=True)
        remove_record(checkpoint.folder, journal)
    return bool(rewound)


def _is_rewound(checkpoint: Checkpoint, journal: Journal) -> bool:
    """Whether the logs end before the batch of a complete rescale."""
    latest = checkpoint.latest_batch("offsets")
    return latest is None or latest < journal.next_batch


def _was_rerun(checkpoint: Checkpoint, journal: Journal) -> bool:
    """Whether Spark has replaced the batch of a complete rescale by a batch with another number of key groups."""
    entry = checkpoint.folder.child(f"offsets/{journal.next_batch}")
    return entry.exists() and checkpoint.offset_entry(journal.next_batch).max_parallelism != journal.new


def _recorded_rescales(checkpoint: HadoopPath) -> list[Journal]:
    """Return the journals of complete rescales, oldest first."""
    folder = checkpoint.child(RECORDS_FOLDER)
    names = [name for name, _, _ in folder.entries() if name.endswith(".json")] if folder.exists() else []
    return sorted((Journal.parse(folder.child(name).read()) for name in names), key=lambda journal: journal.batch)


def _record_file(checkpoint: HadoopPath, journal: Journal) -> HadoopPath:
    return checkpoint.child(RECORDS_FOLDER).child(f"{journal.next_batch}.json")
