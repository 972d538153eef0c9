"""Scans that read many small files: opening them takes longer than reading them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.options import SINK_AUTO_COMPACTION, SINK_TARGET_FILE_SIZE
from penstock.doctor.finding import Finding, Kind

if TYPE_CHECKING:
    from penstock.doctor.records import Application
    from penstock.doctor.timeline import Timeline

_MIN_FILES = 100
_SMALL_BYTES = 2 << 20
"""Files are small if they have fewer bytes on average: reading them takes about as long as opening them."""
_BYTES_PER_SECOND = 20e6
"""Bytes of a file that a core reads and parses per second, at the lower end: CSV or compressed columns."""
_MAX_OPEN_SECONDS = 0.1
"""The most seconds per file that are attributed to opening it, as in an object store."""
_ASSUMED_OPEN_SECONDS = 0.005
"""The seconds per file that are assumed if Spark measures no scan time, as for CSV and JSON: those of a local disk."""


def check(application: Application, _: Timeline) -> Iterator[Finding]:
    """Yield a finding per scan of many small files.

    Lost seconds: the scan time of Spark, less the time to read the bytes at `_BYTES_PER_SECOND`; at most
    `_MAX_OPEN_SECONDS` per file that would not exist with files of the target size. Without a measured scan time, the
    time of the tasks counts instead, at most `_ASSUMED_OPEN_SECONDS` per file, and nothing if Python functions run in
    the stage. This is divided by the number of tasks that ran at a time.
    """
    target = SINK_TARGET_FILE_SIZE.default
    assert isinstance(target, int)
    for query in application.queries.values():
        for node in query.nodes:
            files = application.value(node, "number of files read")
            size = application.value(node, "size of files read")
            if files < _MIN_FILES or size / files > _SMALL_BYTES:
                continue
            stages = application.stages_of([node])
            if not stages:
                continue
            needed = max(-(-size // target), 1)
            scan, limit, basis = application.value(node, "scan time") / 1e3, _MAX_OPEN_SECONDS, ""
            if not scan:
                if any(stage.is_python for stage in stages):
                    continue
                scan, limit = sum(float(stage.tasks.seconds.sum()) for stage in stages), _ASSUMED_OPEN_SECONDS
                basis = f" Spark measures no scan time of this format: {1000 * limit:.0f} ms per file are assumed."
            extra = min(scan - size / _BYTES_PER_SECOND, limit * (files - needed))
            tasks = sum(len(stage.tasks.seconds) for stage in stages)
            problem = (
                f"{show_count(tasks, 'task')} read {files:,.0f} files with {show_bytes(size)} in total, "
                f"{show_bytes(size / files)} per file. Opening a file takes longer than reading it.{basis}"
            )
            yield Finding(
                Kind.SMALL_FILES,
                extra / max(stage.tasks.concurrency for stage in stages),
                application.where(query.id),
                node.plain_text[:160],
                problem,
                f"A sink of Penstock writes files of about {show_bytes(target)} ({SINK_TARGET_FILE_SIZE.key}), here "
                f"{show_count(int(needed), 'file')}; {SINK_AUTO_COMPACTION.key} merges small files before they become "
                "visible. Files that exist already are read as they are.",
                "Rewrite the files as larger files, and let the program that writes them write fewer.",
                {"files": files, "bytes": size, "decided_files": needed, "tasks": tasks},
                queries=(query.id,),
            )
