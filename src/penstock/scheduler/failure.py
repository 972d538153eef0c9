"""Error messages of failed jobs: the step, the operator, the line of the user's code, and full disks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.connectors.files.files import FileSink
from penstock.errors import JobError, PenstockError
from penstock.graph.labels import column_names, vertex_name
from penstock.graph.partitioner import FORWARD
from penstock.spark.errors import full_disk, is_full_disk, is_full_local_dir, user_traceback, without_stack
from penstock.spark.plans import catalyst
from penstock.spark.run.local_dirs import LocalDir, local_dirs

if TYPE_CHECKING:
    from penstock.connectors.core.base import Sink
    from penstock.graph import JobVertex, StreamNode
    from penstock.planner.plan import JobPlan
    from penstock.spark.bridge.jvm import Bridge

log = logging.getLogger("penstock.scheduler")

_CALLED_FROM = re.compile(r"was called from\s*\n?\s*(\S+:\d+)")
_PYTHON_OPERATORS = ("Python", "Pandas", "Arrow")  # parts of the names of operators with Python functions


def describe_failure(plan: JobPlan, vertex: JobVertex, error: BaseException, hint: str | None = None) -> JobError:
    """Return the error of a failed vertex; the hint of `error` takes precedence over `hint`."""
    text = str(error)
    node, line = _find_failed_operator(plan, vertex, text)
    name = vertex_name(plan.graph, vertex, column_names(plan.graph))
    message = f"step {vertex.id.removeprefix('v')} failed: {name}"
    if node.description != vertex.name:
        message += f"\n  operator: {node.description[:300]}"
    if line:
        message += f"\n  made at:  {line}"
    error_hint = error.hint if isinstance(error, PenstockError) else None
    return JobError(message, cause=_readable_text(error, text), hint=error_hint or hint)


def as_user_error(error: BaseException, hint: str | None = None) -> BaseException:
    """Return the error that users see: Penstock's errors and interrupts unchanged, others wrapped in a `JobError`."""
    if isinstance(error, (PenstockError, KeyboardInterrupt, SystemExit)):
        return error
    failure = JobError("the job failed", cause=_readable_text(error, str(error)), hint=hint)
    failure.__cause__ = error
    return failure


def clear_frames(error: BaseException | None) -> None:
    """Clear the variables in Penstock's frames of an error's tracebacks to free memory; tracebacks print as before."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if str(trace.tb_frame.f_globals.get("__name__")).startswith("penstock."):
                with suppress(RuntimeError):  # the frame still runs
                    trace.tb_frame.clear()
            trace = trace.tb_next
        error = error.__cause__ or error.__context__


def _readable_text(error: BaseException, text: str) -> str:
    if "Traceback (most recent call last):" in text:
        return user_traceback(text)
    message, disk = without_stack(text) or type(error).__name__, full_disk(error)
    if disk is not None:  # Spark's message has it only in the stack trace
        return f"{disk}; {message}"
    return message if message.startswith(type(error).__name__) else f"{type(error).__name__}: {message}"


def _find_failed_operator(plan: JobPlan, vertex: JobVertex, text: str) -> tuple[StreamNode, str]:
    """Return the operator that most likely failed, and the user's line that created it; an empty line if unknown."""
    called_from = _CALLED_FROM.search(text)
    nodes = [plan.graph.node(node_id) for node_id in reversed(vertex.node_ids) if node_id in plan.nodes]
    suspects = list(nodes)
    if "Traceback (most recent call last)" in text:
        suspects = [node for node in nodes if any(word in node.description for word in _PYTHON_OPERATORS)] or nodes
    if called_from:
        return suspects[0], called_from[1]
    for node in suspects:
        if node.location is not None:
            return node, str(node.location)
        top = plan.nodes[node.id].top
        for operator in top.walk() if top is not None and top.children else ():
            line = catalyst.user_line(operator)
            if line is not None and not line.is_in_penstock:
                return node, str(line)
    return suspects[0], ""


_SPACE_HINT = "set spark.local.dir to folders on a larger disk before the session starts, or free some space"


def full_disk_hint(bridge: Bridge | None, error: BaseException, sinks: Iterable[Sink] = ()) -> str | None:
    """Return a hint that names the full disk and what to do; None if no disk is full, or a disk of no known sink."""
    if not is_full_disk(error):
        return None
    if is_full_local_dir(error):
        folders = [] if bridge is None else local_dirs(bridge)
        where = f": {folders_text(folders)}" if folders else " of the executors"
        return f"the disk of spark.local.dir is full, where Spark keeps shuffled and spilled rows{where}; {_SPACE_HINT}"
    paths = ", ".join(sink.path for sink in sinks if isinstance(sink, FileSink))
    return f"free some space on the disk of {paths}, or choose another path" if paths else None


def warn_of_little_space(folders: Sequence[LocalDir], plan: JobPlan) -> None:
    """Log a warning if the sources of a job that shuffles are larger than the free space in Spark's local folders."""
    if not folders or all(edge.partitioner == FORWARD for edge in plan.graph.edges):
        return
    size = sum(source.scan.size_in_bytes or 0 for source in plan.sources.values())
    if size > sum(folder.free_bytes for folder in folders):
        log.warning(
            "the sources of this job hold %s, and their shuffled rows may not fit into spark.local.dir: %s; %s",
            show_bytes(size),
            folders_text(folders),
            _SPACE_HINT,
        )


def folders_text(folders: Sequence[LocalDir]) -> str:
    """Return text with the free space of each folder."""
    return ", ".join(f"{folder.path} has {show_bytes(folder.free_bytes)} free" for folder in folders)
