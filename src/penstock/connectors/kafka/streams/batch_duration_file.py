"""Local files by which the driver reports the durations of a query's batches to its stream reader.

Spark runs a stream reader in a separate process, which it kills at the end of the query. Spark calls the reader when a
batch begins, but only the driver is notified when a batch ends. So the reader stores its unique name in the offsets of
its batches. The driver reads this name from the progress of a batch, and writes the duration into a file of this name.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from penstock.base.local_files import write_atomically
from penstock.base.ownership import Writer, read_checked
from penstock.connectors.kafka.streams.offsets import planned_batch_of

log = logging.getLogger("penstock.connectors")

_NAME = re.compile(r"\w+")
_MAX_AGE = 86_400
"""Seconds after which a file counts as left behind by a killed driver and is deleted."""
_MAX_BYTES = 1_000_000
"""The maximum size of a file; an offset has a few bytes per partition of the topic."""
_END, _SECONDS = "end", "seconds"


def read_duration(reader: str, end: Mapping[str, Any]) -> float | None:
    """Return the duration of a batch in seconds; None if it was not reported (yet).

    `reader` is the name of the stream reader, and `end` the end offset. Files of other users are ignored.
    """
    content = read_checked(str(_file(reader)), _MAX_BYTES)
    if content is None or content.writer is not Writer.USER:
        return None
    try:
        report = json.loads(content.content)
        return float(report[_SECONDS]) if report[_END] == end else None
    except (ValueError, LookupError, TypeError):  # written by another release of Penstock
        return None


class BatchDurationWriter:
    """Writes duration files on the driver, and removes them at the end of their query or of the process."""

    def __init__(self) -> None:
        self._files: dict[str, set[Path]] = {}
        weakref.finalize(self, _remove_all, self._files)
        pattern, oldest = _file("*"), time.time() - _MAX_AGE
        for file in pattern.parent.glob(pattern.name):
            with suppress(OSError):  # removed by another driver, or owned by another user
                if file.lstat().st_mtime < oldest:
                    file.unlink()

    def write(self, progress: Mapping[str, Any]) -> None:
        """Report the duration of a batch to the readers of its query; `progress` is Spark's progress of the batch."""
        durations = progress["durationMs"]
        # As in the reader's own measurement, without `latestOffset`. The result is negative if the clock was set back.
        seconds = (durations["triggerExecution"] - durations.get("latestOffset", 0)) / 1000
        for source in progress["sources"]:
            end = source["endOffset"]
            planned = planned_batch_of(end) if isinstance(end, dict) and end != source["startOffset"] else None
            if seconds > 0 and planned is not None and planned.reader and _NAME.fullmatch(planned.reader):
                file = _file(planned.reader)
                self._files.setdefault(progress["id"], set()).add(file)
                try:
                    write_atomically(
                        str(file), json.dumps({_END: end, _SECONDS: seconds}).encode(), overwrite=True, private=True
                    )
                except OSError as error:
                    log.info("the duration of a batch could not be reported to its stream reader: %s", error)

    def remove(self, query_id: str) -> None:
        """Remove the files of a query that has ended."""
        _remove_all({query_id: self._files.pop(query_id, set())})


def _file(reader: str) -> Path:
    return Path(tempfile.gettempdir(), f"penstock-stream-{reader}")


def _remove_all(files: Mapping[str, Iterable[Path]]) -> None:
    for file in chain.from_iterable(files.values()):
        with suppress(OSError):  # a later driver removes the file once it is a day old
            file.unlink(missing_ok=True)
