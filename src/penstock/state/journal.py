"""The journal of a rescale, from which another process can finish or undo it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from penstock.commit.names import check_files
from penstock.errors import StateError

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder

FOLDER = "_penstock_rescale"
"""The folder in a checkpoint with the files of a rescale until they are published."""
STAGED = "checkpoint"


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

    Parameters
    ----------
    batch
        The last batch of the query; the rescale becomes the next batch.
    files
        The files to move: paths relative to the checkpoint and to the staging folder.
    replaced
        The old text of the replaced files, by path.
    barrier
        Whether a `penstock.state.barrier.Barrier` exists while files are published.
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
        """Parse the text of a journal.

        Raises
        ------
        StateError
            If it names a file outside the checkpoint, which would be removed or overwritten.
        """
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

    def save(self, checkpoint: Folder) -> None:
        """Write the journal atomically, unless there is a journal of the same phase."""
        _file(checkpoint, self.phase).write(self.text)

    @staticmethod
    def forget(checkpoint: Folder) -> None:
        """Delete the journal of a checkpoint, if it exists; the file of the last phase is deleted last."""
        for phase in Phase:
            _file(checkpoint, phase).delete()

    def aborting(self) -> Self:
        """Return the journal of the phase in which the rescale is undone."""
        return replace(self, phase=Phase.ABORTING)

    def publishing(self, files: tuple[str, ...], replaced: dict[str, str], *, barrier: bool) -> Self:
        """Return the journal of the phase in which the rescale is published."""
        return replace(self, phase=Phase.PUBLISHING, files=files, replaced=replaced, barrier=barrier)


def _file(checkpoint: Folder, phase: Phase) -> Folder:
    return checkpoint.child(FOLDER).child(f"{phase}.json")
