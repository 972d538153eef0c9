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
"""The folder below a checkpoint with the files of a rescale until they are put in place."""
STAGED = "checkpoint"


class Phase(StrEnum):
    """How far a rescale has come."""

    STAGING = "staging"
    """The new state is written aside; the checkpoint is unchanged."""
    PUBLISHING = "publishing"
    """The new state is complete and checked; its files are put in place."""
    ABORTING = "aborting"
    """The files that were put in place are removed again."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A rescale in progress.

    Each phase has a file of its own, and no file is ever replaced: object stores have a moment without either then.

    Parameters
    ----------
    batch
        The last batch of the query; the rescale becomes the next one.
    old, new
        The number of key groups before and after.
    phase
        The current phase.
    files
        The files to move: paths relative to the checkpoint, the same in the staged one.
    replaced
        The old text of the files that are replaced, by path.
    barrier
        Whether a `penstock.state.barrier.Barrier` stands while files are put in place.
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
        """Return the journal of a checkpoint, or None if no rescale is in progress."""
        for phase in reversed(Phase):
            file = _file(checkpoint, phase)
            if file.exists():
                return cls.parse(file.read())
        return None

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Return the journal that was written as a text.

        Raises
        ------
        StateError
            If it names a file outside the checkpoint: such a file would be removed, or written.
        """
        content = json.loads(text)
        try:
            check_files((*content["files"], *content["replaced"]))
        except ValueError as error:
            raise StateError.unreadable("the journal of a rescale", str(error)) from error
        return cls(**content | {"phase": Phase(content["phase"]), "files": tuple(content["files"])})

    @property
    def text(self) -> bytes:
        """Itself, to be written."""
        return json.dumps(asdict(self)).encode()

    def save(self, checkpoint: Folder) -> None:
        """Write the journal, whole or not at all; one of the same phase stays."""
        _file(checkpoint, self.phase).write(self.text)

    @staticmethod
    def forget(checkpoint: Folder) -> None:
        """Delete the journal of a checkpoint, if there is one; until it is gone its last phase counts."""
        for phase in Phase:
            _file(checkpoint, phase).delete()

    def aborting(self) -> Self:
        """Return the journal of a rescale that is taken back."""
        return replace(self, phase=Phase.ABORTING)

    def publishing(self, files: tuple[str, ...], replaced: dict[str, str], *, barrier: bool) -> Self:
        """Return the journal of the next phase."""
        return replace(self, phase=Phase.PUBLISHING, files=files, replaced=replaced, barrier=barrier)


def _file(checkpoint: Folder, phase: Phase) -> Folder:
    return checkpoint.child(FOLDER).child(f"{phase}.json")
