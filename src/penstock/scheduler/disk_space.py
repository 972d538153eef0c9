"""Warnings and hints about disks that are full, or too small for what a job shuffles."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.connectors.files import FileSink
from penstock.graph.partitioner import FORWARD
from penstock.spark.local_dirs import LocalDir, local_dirs
from penstock.spark_errors import is_full_disk, is_full_local_dir
from penstock.units import show_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.connectors.base import Sink
    from penstock.planner.plan import JobPlan
    from penstock.spark.jvm import Bridge

log = logging.getLogger("penstock.scheduler")

_LARGER = "set spark.local.dir to folders on a larger disk before the session starts, or free some space"


def full_disk_hint(bridge: Bridge | None, error: BaseException, sinks: Iterable[Sink] = ()) -> str | None:
    """Return a hint that names the full disk and what to do; None if the error is not about a full disk.

    Parameters
    ----------
    bridge
        The session; None if it is closed.
    """
    if not is_full_disk(error):
        return None
    if is_full_local_dir(error):
        folders = [] if bridge is None else local_dirs(bridge)
        where = f": {shown(folders)}" if folders else " of the executors"
        return f"the disk of spark.local.dir is full, where Spark keeps shuffled and spilled rows{where}; {_LARGER}"
    paths = ", ".join(sink.path for sink in sinks if isinstance(sink, FileSink))
    return f"free some space on the disk of {paths}, or choose another path" if paths else None


def warn_of_little_space(folders: Sequence[LocalDir], plan: JobPlan) -> None:
    """Log a warning if the sources of a job that shuffles are larger than the free space in Spark's local folders."""
    if not folders or all(edge.partitioner == FORWARD for edge in plan.graph.edges):
        return
    size = sum(source.scan.size_in_bytes or 0 for source in plan.sources.values())
    if size > sum(folder.free for folder in folders):
        log.warning(
            "the sources of this job hold %s, and their shuffled rows may not fit into spark.local.dir: %s; %s",
            show_bytes(size),
            shown(folders),
            _LARGER,
        )


def shown(folders: Sequence[LocalDir]) -> str:
    """Return the folders with their free space."""
    return ", ".join(f"{folder.path} has {show_bytes(folder.free)} free" for folder in folders)
