"""What a rescale has done so far, kept beside its files so that another process can finish or undo it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder

FOLDER = "_penstock_rescale"
"""The folder below a checkpoint that everything of a rescale lies in until it is put in place."""
STAGED = "checkpoint"
_FILE = "journal.json"


class Phase(StrEnum):
    """How far a rescale has come."""

    STAGING = "staging"
    """New state is being written aside; the checkpoint is as it was."""
    PUBLISHING = "publishing"
    """New state is complete and checked; its files are being put in place."""
    ABORTING = "aborting"
    """What was put in place is being taken back."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A rescale on its way.

    Parameters
    ----------
    batch
        The last batch of the query; the rescale becomes the next one.
    old, new
        The max parallelism before and after.
    phase
        How far it has come.
    files
        What is to be moved: paths from the checkpoint's folder on, the same in the staged one.
    replaced
        What files said that are replaced, by their paths.
    """

    batch: int
    old: int
    new: int
    phase: Phase = Phase.STAGING
    files: tuple[str, ...] = ()
    replaced: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, checkpoint: Folder) -> Self | None:
        """Return the journal of a checkpoint, or None where no rescale is on its way."""
        file = checkpoint.child(FOLDER).child(_FILE)
        if not file.exists():
            return None
        content = json.loads(file.read())
        return cls(**content | {"phase": Phase(content["phase"]), "files": tuple(content["files"])})

    def save(self, checkpoint: Folder) -> None:
        """Write the journal, whole or not at all."""
        checkpoint.child(FOLDER).child(_FILE).write(json.dumps(asdict(self)).encode(), overwrite=True)

    @staticmethod
    def forget(checkpoint: Folder) -> None:
        """Delete the journal of a checkpoint, if there is one."""
        checkpoint.child(FOLDER).child(_FILE).delete()

    def aborting(self) -> Self:
        """Return the journal of a rescale that is taken back."""
        return replace(self, phase=Phase.ABORTING)

    def publishing(self, files: tuple[str, ...], replaced: dict[str, str]) -> Self:
        """Return the journal of the next phase."""
        return replace(self, phase=Phase.PUBLISHING, files=files, replaced=replaced)
