"""Reads the progress of a query's batches (from a checkpoint or a file of JSON lines) and the decisions for them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import StreamError
from penstock.state.log_entries import OffsetEntry
from penstock.state.progress_files import PROGRESS_FOLDER
from penstock.streams.progress import BatchProgress, BatchRecord, parse_batches, parse_progress

if TYPE_CHECKING:
    from penstock.spark.io.filesystem import HadoopPath


@dataclass(frozen=True)
class LocalTextFiles:
    """A text file, or a folder of text files, on this machine."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def texts(self, subfolder: str = "") -> dict[str, str] | None:
        """Return the texts of the file, or of the files in the folder or subfolder, by name; None for a missing path.

        Files whose names begin with a dot are omitted, because Hadoop stores checksums in them. Files that are removed
        during the call are omitted, too: Spark removes the logs of old batches.
        """
        path = self.path / subfolder
        files = [file for file in path.iterdir() if file.name[0] != "."] if path.is_dir() else [path]
        texts = {}
        for file in files:
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                texts[file.name] = file.read_text()
        return texts if texts or path.is_dir() else None


@dataclass(frozen=True)
class HadoopTextFiles:
    """A text file, or a folder of text files, on a Hadoop file system."""

    path: HadoopPath

    def __str__(self) -> str:
        return str(self.path)

    def texts(self, subfolder: str = "") -> dict[str, str] | None:
        """Return the texts of the file, or of the files in the folder or its subfolder; see `LocalTextFiles`."""
        path = self.path.child(subfolder) if subfolder else self.path
        if not path.exists():
            return None
        if not path.is_folder():
            return {path.name: path.read().decode()}
        names = [name for name, is_folder, _ in path.entries() if not is_folder and name[0] != "."]
        contents = {name: path.child(name).read_if_exists() for name in names}
        return {name: content.decode() for name, content in contents.items() if content is not None}


TextFiles = LocalTextFiles | HadoopTextFiles


def read_progress(files: TextFiles) -> list[BatchProgress]:
    """Return the batches in a checkpoint's progress folder, or in a file of JSON lines; else raise `StreamError`."""
    progress = files.texts(PROGRESS_FOLDER)
    if progress is not None:
        batches = parse_progress([text for name, text in progress.items() if name.endswith(".json")], str(files))
        return _after_rescale(batches, files)
    is_checkpoint = files.texts("offsets") is not None  # a checkpoint may have a single file, too: `metadata`
    texts = files.texts()
    if texts is None:
        raise StreamError.no_progress(str(files), "the path does not exist")
    if is_checkpoint or len(texts) != 1:
        raise StreamError.no_progress(str(files), f"there is no {PROGRESS_FOLDER!r} in this folder")
    (text,) = texts.values()
    return parse_progress([line for line in text.splitlines() if line.strip()], str(files))


def _after_rescale(batches: list[BatchProgress], files: TextFiles) -> list[BatchProgress]:
    """Update the state partitions of the last batch if a rescale followed: Spark reports no progress of a rescale."""
    logs = {int(name): text for name, text in (files.texts("offsets") or {}).items() if name.isdigit()}
    newest = max(logs, default=-1)
    if not batches or newest <= batches[-1].batch:
        return batches
    number = OffsetEntry.parse(logs[newest], f"{files}/offsets/{newest}").max_parallelism
    last = batches[-1]
    previous = max((operator.partitions for operator in last.state), default=number)
    if number is None or number == previous:
        return batches
    # Operators without a key have a single state partition before and after a rescale.
    state = tuple(
        replace(operator, partitions=number) if operator.partitions == previous else operator for operator in last.state
    )
    return [*batches[:-1], replace(last, state=state)]


def read_batches(files: TextFiles) -> list[BatchRecord]:
    """Return the decisions for the batches of a query; raise `StreamError` if the files contain none."""
    logs = files.texts("offsets")
    batches = parse_batches({int(name): text for name, text in (logs or {}).items() if name.isdigit()}, str(files))
    if not batches:
        raise StreamError(
            f"{files} has no batch whose records Penstock has chosen",
            hint="read the topic with the format penstock_kafka; only Spark's last hundred batches are recorded",
        )
    return batches
