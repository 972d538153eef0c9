"""Complete rescales, remembered for a query whose logs are taken back to before one of them.

People do so by removing the newest files of ``offsets`` and ``commits``. What a rescale has put in place stays, and
Spark takes it for the state of the batch that is run again: keys that came to another group are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.state.journal import Journal

if TYPE_CHECKING:
    from penstock.spark.filesystem import Folder
    from penstock.state.checkpoint import Checkpoint

FOLDER = "_penstock_rescales"


def remember(checkpoint: Folder, journal: Journal) -> None:
    """Remember a rescale, and forget those that Spark has removed from its logs: nobody can go back over them."""
    for past in _past(checkpoint):
        if not checkpoint.child(f"offsets/{_batch(past)}").exists():
            forget(checkpoint, past)
    checkpoint.child(FOLDER).make()
    _file(checkpoint, journal).write(journal.text, overwrite=True)


def forget(checkpoint: Folder, journal: Journal) -> None:
    """Forget a rescale; nothing happens if it is not remembered."""
    _file(checkpoint, journal).delete()
    checkpoint.child(FOLDER).remove_if_empty()


def check_not_gone_back(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose logs were taken back over a rescale.

    Raises
    ------
    StateError
        If they were.
    """
    for journal in _past(checkpoint.folder):
        if _is_gone(checkpoint, journal):
            raise StateError.gone_back(checkpoint.location, _batch(journal), journal.new)
        if _was_run_again(checkpoint, journal):
            cause = f"batch {_batch(journal)} was run again since, so keys may be missing from the state of later ones"
            raise StateError.gone_back(checkpoint.location, _batch(journal), journal.new, cause)


def remove_what_is_left(checkpoint: Checkpoint) -> bool:
    """Remove what rescales have put in place that the logs were taken back over; return whether there were any."""
    left = [one for one in _past(checkpoint.folder) if _is_gone(checkpoint, one) or _was_run_again(checkpoint, one)]
    for journal in reversed(left):
        if _is_gone(checkpoint, journal):  # otherwise Spark may have written files of the same names since
            for file in journal.files:
                checkpoint.folder.child(file).delete()
            for file, text in journal.replaced.items():
                checkpoint.folder.child(file).write(text.encode(), overwrite=True)
        forget(checkpoint.folder, journal)
    return bool(left)


def _is_gone(checkpoint: Checkpoint, journal: Journal) -> bool:
    latest = checkpoint.latest("offsets")
    return latest is None or latest < _batch(journal)


def _was_run_again(checkpoint: Checkpoint, journal: Journal) -> bool:
    entry = checkpoint.folder.child(f"offsets/{_batch(journal)}")
    return entry.exists() and checkpoint.offsets(_batch(journal)).max_parallelism != journal.new


def _past(checkpoint: Folder) -> list[Journal]:
    """Return the rescales that are remembered, oldest first."""
    folder = checkpoint.child(FOLDER)
    names = [name for name, _, _ in folder.entries() if name.endswith(".json")] if folder.exists() else []
    return sorted((Journal.parse(folder.child(name).read()) for name in names), key=_batch)


def _batch(journal: Journal) -> int:
    return journal.batch + 1


def _file(checkpoint: Folder, journal: Journal) -> Folder:
    return checkpoint.child(FOLDER).child(f"{_batch(journal)}.json")
