"""The journal of a rescale, from which another process can finish or undo it, its lock, and the records of rescales.

The records of complete rescales show whether the logs of a query were rewound to a batch before a rescale. Users rewind
a query by removing the newest files of ``offsets`` and ``commits``. The files that a rescale has published stay, and
Spark uses them as the state of the batch that runs again: keys that moved to another group are lost.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from penstock.commit import Access
from penstock.commit.claims import claimed, holder_of
from penstock.commit.names import check_files
from penstock.errors import StateError
from penstock.spark.bridge.jvm import root_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import Folder
    from penstock.state.checkpoint import Checkpoint

FOLDER = "_penstock_rescale"
"""The folder in a checkpoint with the files of a rescale until they are published."""
STAGED = "checkpoint"
RECORDS = "_penstock_rescales"
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

    Each phase has its own file, and no file is replaced: on object stores neither version exists during a replacement.

    `batch` is the last batch of the query. `files` are the files to move: paths relative to the checkpoint and to the
    staging folder. `replaced` is the old text of the replaced files, by path. `barrier` says whether a
    `penstock.state.rescale.Barrier` exists while files are published.
    """

    batch: int
    old: int
    new: int
    phase: Phase = Phase.STAGING
    files: tuple[str, ...] = ()
    replaced: dict[str, str] = field(default_factory=dict)
    barrier: bool = False

    @classmethod
    def load(cls, checkpoint: Folder) -> Self | None:
        """Return the journal of a checkpoint; None if no rescale is in progress."""
        for phase in reversed(Phase):
            file = _file(checkpoint, phase)
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
    def text(self) -> bytes:
        """The journal as JSON."""
        return json.dumps(asdict(self)).encode()

    @property
    def next_batch(self) -> int:
        """The batch that the rescale becomes."""
        return self.batch + 1

    def save(self, checkpoint: Folder) -> None:
        """Write the journal atomically, unless there is a journal of the same phase."""
        _file(checkpoint, self.phase).write(self.text)

    @staticmethod
    def forget(checkpoint: Folder) -> None:
        """Delete the journal of a checkpoint, if it exists; the file of the last phase is deleted last."""
        for phase in Phase:
            _file(checkpoint, phase).delete()


def _file(checkpoint: Folder, phase: Phase) -> Folder:
    return checkpoint.child(FOLDER).child(f"{phase}.json")


CLAIM = "_penstock_rescale.claim"
"""The lock file: beside the folder of a rescale, so that the folder can be removed while the lock is held."""


@contextmanager
def rescale_lock(bridge: Bridge, checkpoint: Folder) -> Iterator[None]:
    """Hold the exclusive right to write, finish, undo or remove a rescale while the block runs.

    Enter it before reading a journal, as another holder may write a journal. The lock of a dead process is free; see
    `penstock.commit.claims` for processes on other machines. Raise `StateError` if another process or thread holds the
    lock, or the checkpoint cannot be written to.
    """
    access, path = Access(bridge), str(checkpoint.child(CLAIM))
    with ExitStack() as stack:
        try:
            is_mine = stack.enter_context(claimed(access, path))
            holder = None if is_mine else holder_of(access, path)
        except Exception as error:
            raise StateError.not_writable(str(checkpoint), root_cause(error)) from error
        if not is_mine:
            raise StateError.in_progress(str(checkpoint), str(holder or "another process"), path)
        yield


def record(checkpoint: Folder, journal: Journal) -> None:
    """Record a rescale, and remove records of batches that Spark has removed from its logs."""
    for past in _past(checkpoint):
        if not checkpoint.child(f"offsets/{past.next_batch}").exists():
            forget(checkpoint, past)
    checkpoint.child(RECORDS).make()
    _record(checkpoint, journal).write(journal.text, overwrite=True)


def forget(checkpoint: Folder, journal: Journal) -> None:
    """Remove the record of a rescale, if it exists."""
    _record(checkpoint, journal).delete()
    checkpoint.child(RECORDS).remove_if_empty()


def check_not_rewound(checkpoint: Checkpoint) -> None:
    """Check that the logs of a query were not rewound to a batch before a rescale; raise `StateError` if they were."""
    for journal in _past(checkpoint.folder):
        if _is_rewound(checkpoint, journal):
            raise StateError.rolled_back(checkpoint.location, journal.next_batch, journal.new)
        if _was_run_again(checkpoint, journal):
            batch = journal.next_batch
            cause = f"batch {batch} was run again since, so keys may be missing from the state of later ones"
            raise StateError.rolled_back(checkpoint.location, batch, journal.new, cause)


def remove_rewound_rescales(checkpoint: Checkpoint) -> bool:
    """Remove the files of rescales whose batches were removed from the logs; return whether there were any."""
    rewound = [
        journal
        for journal in _past(checkpoint.folder)
        if _is_rewound(checkpoint, journal) or _was_run_again(checkpoint, journal)
    ]
    for journal in reversed(rewound):
        if _is_rewound(checkpoint, journal):  # otherwise Spark may have written files of the same names since
            for file in journal.files:
                checkpoint.folder.child(file).delete()
            for file, text in journal.replaced.items():
                checkpoint.folder.child(file).write(text.encode(), overwrite=True)
        forget(checkpoint.folder, journal)
    return bool(rewound)


def _is_rewound(checkpoint: Checkpoint, journal: Journal) -> bool:
    latest = checkpoint.latest("offsets")
    return latest is None or latest < journal.next_batch


def _was_run_again(checkpoint: Checkpoint, journal: Journal) -> bool:
    entry = checkpoint.folder.child(f"offsets/{journal.next_batch}")
    return entry.exists() and checkpoint.offsets(journal.next_batch).max_parallelism != journal.new


def _past(checkpoint: Folder) -> list[Journal]:
    """Return the recorded rescales, oldest first."""
    folder = checkpoint.child(RECORDS)
    names = [name for name, _, _ in folder.entries() if name.endswith(".json")] if folder.exists() else []
    return sorted((Journal.parse(folder.child(name).read()) for name in names), key=lambda journal: journal.batch)


def _record(checkpoint: Folder, journal: Journal) -> Folder:
    return checkpoint.child(RECORDS).child(f"{journal.next_batch}.json")
