"""Progress bars of jobs on a terminal."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from penstock.base.threads import start_thread
from penstock.base.units import show_bytes, show_rows, show_time
from penstock.events import ExecutionState, JobStateChanged, VertexChanged, VerticesCreated

if TYPE_CHECKING:
    from rich.progress import Task, TaskID
    from rich.table import Table

    from penstock.events import JobStatusEvent, VertexSnapshot
    from penstock.graph import JobVertex, JobVertexID
    from penstock.spark.run.jobs import TaskCounts

    ReadCounts = Callable[[], Mapping[JobVertexID, TaskCounts]]
    """A function that returns the task counts of the running vertices of a job."""

_POLL_INTERVAL = 1.0
"""Seconds between two updates of the task counts."""
_MIN_BAR_WIDTH = 90
"""The smallest width of the terminal (not of a bar), in characters, at which bars are shown."""
_MAX_LINES = 10
"""The most lines for the running vertices of a job."""
_TERMINAL = Console(stderr=True)


class _Figures(ProgressColumn):
    """A column with the finished tasks or operators, what they have read, and the remaining and elapsed time."""

    def render(self, task: Task) -> Text:
        """Return the text of a line."""
        total = "?" if task.total is None else f"{task.total:,.0f}"
        unit = task.fields["unit"].removesuffix("s") if task.total == 1 else task.fields["unit"]
        parts = [f"{task.completed:,.0f} of {total} {unit}", *task.fields["read"]]
        if task.time_remaining is not None and not task.finished and task.fields["shows_remaining"]:
            parts.append(f"{show_time(task.time_remaining)} left")
        parts.append(show_time(task.elapsed or 0))
        return Text("  ".join(parts), style="progress.data.speed", no_wrap=True)


class _Bars(RichProgress):
    """Bars that end before the edge of the terminal.

    A terminal echoes ``^C`` at the cursor. After a full line, the echo would wrap to the next line. Rich would then
    erase a line too few, so the first line would stay on the screen.
    """

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Return the table of all lines."""
        table = super().make_tasks_table(tasks)
        table.width = max(_TERMINAL.width - len("^C^C") - 1, 1)
        return table


class _Screen:
    """The terminal, shared by all running jobs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: _Bars | None = None
        self._jobs: list[Progress] = []  # the listeners of the running jobs
        self._stopped = threading.Event()

    def enter(self, job: Progress) -> _Bars:
        """Add `job`, the listener of a job, and return the bars of all jobs."""
        with self._lock:
            if job not in self._jobs:  # Ctrl-C may have interrupted an earlier call
                self._jobs.append(job)
            if self._bars is None:
                self._bars = _Bars(
                    SpinnerColumn(),
                    TextColumn(
                        "{task.description}",
                        markup=False,
                        table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis", min_width=12),
                    ),
                    *([BarColumn(bar_width=16)] if _TERMINAL.width >= _MIN_BAR_WIDTH else []),
                    _Figures(table_column=Column(no_wrap=True)),
                    console=_TERMINAL,
                    transient=True,
                    speed_estimate_period=60,
                )
                self._bars.start()
                self._stopped = threading.Event()
                start_thread("penstock-progress", partial(self._poll, self._stopped))
            return self._bars

    def leave(self, job: Progress) -> None:
        """Remove `job`, the listener of a job; after the last job, stop drawing."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
            if not self._jobs:
                self._stop()

    def close(self) -> None:
        """Stop drawing, also while jobs run, so that no lines stay on the screen when a program exits."""
        with self._lock:
            self._jobs.clear()
            self._stop()

    def _stop(self) -> None:
        if self._bars is not None:
            self._stopped.set()
            self._bars.stop()
            self._bars = None

    def _poll(self, stopped: threading.Event) -> None:
        """Update the counts of all jobs periodically, on a separate thread."""
        while not stopped.wait(_POLL_INTERVAL):
            with self._lock:
                jobs = list(self._jobs)
            for job in jobs:
                job.update_counts()


_SCREEN = _Screen()
atexit.register(_SCREEN.close)


class Progress:
    """Listener that draws a line for a job and for each running vertex on standard error.

    The line of a vertex shows its finished tasks, the bytes and rows that they read, and the estimated remaining time.
    The line of the job counts operators, as the number of tasks of later operators is not decided yet. `read_counts`
    is called once a second while vertices run.
    """

    def __init__(
        self, name: str, read_counts: ReadCounts = dict, display_name: Callable[[JobVertex], str] = attrgetter("name")
    ) -> None:
        self._name = name
        self._read_counts = read_counts
        self._display_name = display_name
        self._bars: _Bars | None = None
        self._job_line: TaskID | None = None
        self._vertex_lines: dict[JobVertexID, TaskID] = {}
        self._operators_in_vertices = self._finished_operators = self._pending_operators = 0
        self._lock = threading.Lock()  # events and counts come on different threads
        self._has_ended = False

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Draw events; part of `JobStatusListener`."""
        with self._lock:
            if self._has_ended:
                return
            if self._bars is None or self._job_line is None:
                self._bars = _SCREEN.enter(self)
                self._job_line = self._bars.add_task(
                    self._name, total=None, unit="operators", read=(), shows_remaining=False, job=self
                )
            for event in events:
                self._handle(event, self._bars)
            total = self._operators_in_vertices + self._pending_operators
            self._bars.update(self._job_line, total=total, completed=self._finished_operators)
            if self._has_ended:
                # Not `self._vertex_lines`: Ctrl-C may have interrupted between drawing a line and storing it.
                for line in [task.id for task in self._bars.tasks if task.fields["job"] is self]:
                    self._bars.remove_task(line)
        if self._has_ended:
            _SCREEN.leave(self)

    def update_counts(self) -> None:
        """Draw the counts of the running vertices."""
        if not self._vertex_lines:
            return
        try:
            counts_by_vertex = self._read_counts()
        except Exception:  # noqa: BLE001 - Spark has stopped or does not respond; the lines stay unchanged
            return
        with self._lock:
            for vertex_id, counts in counts_by_vertex.items():
                line = self._vertex_lines.get(vertex_id)
                if line is not None and self._bars is not None and not self._has_ended:
                    self._bars.update(
                        line, completed=counts.done, total=max(counts.total, counts.done), read=_read_texts(counts)
                    )

    def _handle(self, event: JobStatusEvent, bars: _Bars) -> None:
        match event:
            case VerticesCreated(vertices, pending):
                self._operators_in_vertices += sum(len(snapshot.vertex.node_ids) for snapshot in vertices)
                self._pending_operators = pending
            case VertexChanged(vertex):
                self._draw(vertex, bars)
            case JobStateChanged(state, pending):
                self._pending_operators, self._has_ended = pending, state.is_terminal

    def _draw(self, snapshot: VertexSnapshot, bars: _Bars) -> None:
        vertex_id = snapshot.vertex.id
        if snapshot.state is ExecutionState.RUNNING and vertex_id not in self._vertex_lines:
            self._vertex_lines[vertex_id] = bars.add_task(
                f"  {vertex_id.removeprefix('v')} {self._display_name(snapshot.vertex)}",
                total=snapshot.parallelism,
                visible=len(self._vertex_lines) < _MAX_LINES,
                unit="tasks",
                read=(),
                shows_remaining=True,
                job=self,
            )
        elif snapshot.state.is_terminal and vertex_id in self._vertex_lines:
            bars.remove_task(self._vertex_lines.pop(vertex_id))
            for line in list(self._vertex_lines.values())[:_MAX_LINES]:
                bars.update(line, visible=True)
        if snapshot.state is ExecutionState.FINISHED:
            self._finished_operators += len(snapshot.vertex.node_ids)


def _read_texts(counts: TaskCounts) -> tuple[str, ...]:
    """Return the bytes and rows that were read, as texts; zeros, such as the bytes of generated rows, are omitted."""
    size = (show_bytes(counts.bytes_read),) if counts.bytes_read else ()
    return (*size, show_rows(counts.rows_read)) if counts.rows_read else size
