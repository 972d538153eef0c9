"""What a batch took, told by the query's driver to the reader of its topic, through a file of their machine.

Spark runs a stream reader in a process of its own. It calls the reader when a batch begins, never when one ends, and
kills it at the end. The driver hears of the end of each batch. So the reader writes a name into the offsets of its
batches. The driver finds it in the progress of the batch, and leaves what the batch took in a file of this name.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.stream_offsets import planned_of
from penstock.spark.durable import write_whole
from penstock.spark.ownership import Writer, read_checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

log = logging.getLogger("penstock.connectors")

_NAME = re.compile(r"\w+")
_KEPT = 86_400
"""Seconds after which a file is of a driver that was killed; a reader whose batches are rarer goes without."""
_LARGEST = 1_000_000
"""Bytes of such a file; an offset has a few for each partition of the topic."""
_END, _SECONDS = "end", "seconds"


def told(reader: str, end: Mapping[str, Any]) -> float | None:
    """Return the seconds that a batch took, None if nobody has told it (yet).

    What another user may have written is not believed.

    Parameters
    ----------
    reader
        The name in the batch's offset.
    end
        This offset.
    """
    content = read_checked(str(_file(reader)), _LARGEST)
    if content is None or content.writer is not Writer.USER:
        return None
    try:
        found = json.loads(content.content)
        return float(found[_SECONDS]) if found[_END] == end else None
    except (ValueError, LookupError, TypeError):  # another release of Penstock has written it
        return None


class Teller:
    """The driver's side; its files are removed when their query has ended, or with the process."""

    def __init__(self) -> None:
        self._files: dict[str, set[Path]] = {}
        weakref.finalize(self, _remove_all, self._files)
        any_file, old = _file("*"), time.time() - _KEPT
        for one in any_file.parent.glob(any_file.name):
            with suppress(OSError):  # another driver has just removed it, or it is another user's
                if one.lstat().st_mtime < old:
                    one.unlink()

    def tell(self, progress: Mapping[str, Any]) -> None:
        """Tell the readers of a query what its batch took.

        Parameters
        ----------
        progress
            What Spark says of a batch that has run (``StreamingQueryProgress.json``).
        """
        durations = progress["durationMs"]
        # The reader counts from when it has found the records. The clock may be set back within a batch.
        seconds = (durations["triggerExecution"] - durations.get("latestOffset", 0)) / 1000
        for source in progress["sources"]:
            end = source["endOffset"]
            planned = planned_of(end) if isinstance(end, dict) and end != source["startOffset"] else None
            if seconds > 0 and planned is not None and planned.reader and _NAME.fullmatch(planned.reader):
                file = _file(planned.reader)
                self._files.setdefault(progress["id"], set()).add(file)
                try:
                    write_whole(
                        str(file), json.dumps({_END: end, _SECONDS: seconds}).encode(), overwrite=True, private=True
                    )
                except OSError as error:
                    log.info("a stream reader is not told how long its batches take: %s", error)

    def forget(self, query_id: str) -> None:
        """Remove what was told to the readers of a query that has ended."""
        _remove(self._files.pop(query_id, ()))


def _file(reader: str) -> Path:
    return Path(tempfile.gettempdir(), f"penstock-stream-{reader}")


def _remove_all(files: Mapping[str, Iterable[Path]]) -> None:
    for of_query in files.values():
        _remove(of_query)


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        with suppress(OSError):  # one that cannot be removed is removed a day later
            file.unlink(missing_ok=True)
