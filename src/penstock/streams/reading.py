"""Where the progress and the batches of a query are read from: a checkpoint, or a file of JSON lines."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.errors import StreamError
from penstock.state.layout import OffsetEntry
from penstock.state.progress_files import PROGRESS
from penstock.streams.batches import BatchRecord, batches_of
from penstock.streams.progress import BatchProgress, progress_of

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.spark.filesystem import Folder


class Place(Protocol):
    """A file or a folder, on this machine or on a file system of Hadoop."""

    def texts(self, below: str = "") -> dict[str, str] | None:
        """Return the files in a folder below it, or the file itself, by name; None if nothing is there.

        Files whose names begin with a dot are left out: Hadoop keeps checksums in them. So are those that are removed
        meanwhile, as Spark does with the logs of old batches.
        """


class LocalPlace:
    """One of this machine.

    Parameters
    ----------
    path
        Where it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def texts(self, below: str = "") -> dict[str, str] | None:
        """Return the files in a folder below it, or the file itself."""
        path = self._path / below
        files = [one for one in path.iterdir() if one.name[0] != "."] if path.is_dir() else [path]
        found = {}
        for one in files:
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                found[one.name] = one.read_text()
        return found if found or path.is_dir() else None


class HadoopPlace:
    """One of a file system of Hadoop.

    Parameters
    ----------
    folder
        Where it is.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def texts(self, below: str = "") -> dict[str, str] | None:
        """Return the files in a folder below it, or the file itself."""
        path = self._folder.child(below) if below else self._folder
        if not path.exists():
            return None
        if not path.is_folder():
            return {path.name: path.read().decode()}
        names = [name for name, is_folder, _ in path.entries() if not is_folder and name[0] != "."]
        found = {name: path.child(name).read_if_there() for name in names}
        return {name: content.decode() for name, content in found.items() if content is not None}


def read_progress(place: Place) -> list[BatchProgress]:
    """Return what Spark said of a query's batches.

    Parameters
    ----------
    place
        A checkpoint, or a file with a line for each batch.

    Raises
    ------
    StreamError
        If there is nothing of that kind.
    """
    recorded = place.texts(PROGRESS)
    if recorded is not None:
        batches = progress_of([text for name, text in recorded.items() if name.endswith(".json")], str(place))
        return _after_rescale(batches, place)
    is_checkpoint = place.texts("offsets") is not None  # its only file may be the query's id
    files = place.texts()
    if files is None:
        raise StreamError.no_progress(str(place), "there is nothing there")
    if is_checkpoint or len(files) != 1:
        raise StreamError.no_progress(str(place), f"there is no {PROGRESS!r} in this folder")
    (text,) = files.values()
    return progress_of([line for line in text.splitlines() if line.strip()], str(place))


def _after_rescale(batches: list[BatchProgress], place: Place) -> list[BatchProgress]:
    """Give the last batch the key groups of today: Spark says nothing of the batch of a rescale."""
    logs = {int(name): text for name, text in (place.texts("offsets") or {}).items() if name.isdigit()}
    newest = max(logs, default=-1)
    if not batches or newest <= batches[-1].batch:
        return batches
    number = OffsetEntry.parse(logs[newest], f"{place}/offsets/{newest}").max_parallelism
    last = batches[-1]
    before = max((one.partitions for one in last.state), default=number)
    if number is None or number == before:
        return batches
    # Operators without a key have one group, whatever the number is.
    state = tuple(replace(one, partitions=number) if one.partitions == before else one for one in last.state)
    return [*batches[:-1], replace(last, state=state)]


def read_batches(place: Place) -> list[BatchRecord]:
    """Return what was decided for the batches of a query, and what they took.

    Raises
    ------
    StreamError
        If it is no checkpoint, or Penstock decided nothing for it.
    """
    logs = place.texts("offsets")
    found = batches_of({int(name): text for name, text in (logs or {}).items() if name.isdigit()}, str(place))
    if not found:
        raise StreamError.no_batches(str(place))
    return found
