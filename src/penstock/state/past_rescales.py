"""Records of complete rescales, to detect that the logs of a query were rewound to a batch before a rescale.

Users rewind a query by removing the newest files of ``offsets`` and ``commits``. The files that a rescale has published
stay, and Spark uses them as the state of the batch that runs again: keys that moved to another group are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.state.journal import Journal

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder
    from penstock.state.checkpoint import Checkpoint

FOLDER = "_penstock_rescales"


def record(checkpoint: Folder, journal: Journal) -> None:
    """Record a rescale, and remove records of batches that Spark has removed from its logs."""
    for past in _past(checkpoint):
        if not checkpoint.child(f"offsets/{_batch(past)}").exists():
            forget(checkpoint, past)
    checkpoint.child(FOLDER).make()
    _file(checkpoint, journal).write(journal.text, overwrite=True)


def forget(checkpoint: Folder, journal: Journal) -> None:
    """Remove the record of a rescale, if it exists."""
    _file(checkpoint, journal).delete()
    checkpoint.child(FOLDER).remove_if_empty()


def check_not_rewound(checkpoint: Checkpoint) -> None:
    """Check that the logs of a query were not rewound to a batch before a rescale.

    Raises
    ------
    StateError
        If they were.
    """
    for journal in _past(checkpoint.folder):
        if _is_rewound(checkpoint, journal):
            raise StateError.rolled_back(checkpoint.location, _batch(journal), journal.new)
        if _was_run_again(checkpoint, journal):
            cause = f"batch {_batch(journal)} was run again since, so keys may be missing from the state of later ones"
            raise StateError.rolled_back(checkpoint.location, _batch(journal), journal.new, cause)


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
    return latest is None or latest < _batch(journal)


def _was_run_again(checkpoint: Checkpoint, journal: Journal) -> bool:
    entry = checkpoint.folder.child(f"offsets/{_batch(journal)}")
    return entry.exists() and checkpoint.offsets(_batch(journal)).max_parallelism != journal.new


def _past(checkpoint: Folder) -> list[Journal]:
    """Return the recorded rescales, oldest first."""
    folder = checkpoint.child(FOLDER)
    names = [name for name, _, _ in folder.entries() if name.endswith(".json")] if folder.exists() else []
    return sorted((Journal.parse(folder.child(name).read()) for name in names), key=_batch)


def _batch(journal: Journal) -> int:
    return journal.batch + 1


def _file(checkpoint: Folder, journal: Journal) -> Folder:
    return checkpoint.child(FOLDER).child(f"{_batch(journal)}.json")
