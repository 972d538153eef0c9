"""How far jobs have come, on a terminal."""

from __future__ import annotations

import atexit
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from penstock.events import ExecutionState, JobStateChanged, VertexChanged, VerticesCreated
from penstock.units import show_bytes, show_rows, show_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rich.progress import Task, TaskID
    from rich.table import Table

    from penstock.events import JobStatusEvent, VertexSnapshot
    from penstock.graph import JobVertex, JobVertexID

    Look = Callable[[], Mapping[JobVertexID, "Counts"]]
    """Asks how far the running vertices of a job have come."""

_EVERY = 1.0
"""Seconds between two looks at the tasks of the running vertices."""
_WIDE = 90
"""Columns of a terminal that has room for bars beside names and figures."""
_SHOWN = 10
"""Running vertices of a job that have a line; a terminal has few lines."""


_TERMINAL = Console(stderr=True)


class Counts(Protocol):
    """How far a vertex has come."""

    @property
    def done(self) -> int:
        """Tasks that have ended."""

    @property
    def total(self) -> int:
        """Tasks of the stages that have begun."""

    @property
    def bytes_read(self) -> int:
        """What they have read."""

    @property
    def rows_read(self) -> int:
        """The same as rows."""


class _Figures(ProgressColumn):
    """How much is done, and when all will be."""

    def render(self, task: Task) -> Text:
        """Return the text of a line."""
        total = "?" if task.total is None else f"{task.total:,.0f}"
        unit = task.fields["unit"].removesuffix("s") if task.total == 1 else task.fields["unit"]
        parts = [f"{task.completed:,.0f} of {total} {unit}", *task.fields["read"]]
        if task.time_remaining is not None and not task.finished and task.fields["foresees"]:
            parts.append(f"{show_time(task.time_remaining)} left")
        parts.append(show_time(task.elapsed or 0))
        return Text("  ".join(parts), style="progress.data.speed", no_wrap=True)


class _Bars(Bars):
    """Bars that end before the edge of the terminal.

    A terminal shows ``^C`` where the cursor is. Behind a full line that would be in the next one, and the first line
    would stay on the screen, as rich counts lines from the last one.
    """

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Return the table of all lines."""
        table = super().make_tasks_table(tasks)
        table.width = max(_TERMINAL.width - len("^C^C") - 1, 1)
        return table


class _Screen:
    """The terminal, which all jobs that run at the same time draw on together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._jobs: list[Progress] = []
        self._left = threading.Event()

    def enter(self, job: Progress) -> Bars:
        """Return the bars of all jobs, for one more of them."""
        with self._lock:
            if job not in self._jobs:  # Ctrl-C may have come while it entered
                self._jobs.append(job)
            if self._bars is None:
                self._bars = _Bars(
                    SpinnerColumn(),
                    TextColumn(
                        "{task.description}",
                        markup=False,
                        table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis", min_width=12),
                    ),
                    *([BarColumn(bar_width=16)] if _TERMINAL.width >= _WIDE else []),
                    _Figures(table_column=Column(no_wrap=True)),
                    console=_TERMINAL,
                    transient=True,
                    speed_estimate_period=60,
                )
                self._bars.start()
                self._left = threading.Event()
                threading.Thread(target=self._look, args=(self._left,), name="penstock-progress", daemon=True).start()
            return self._bars

    def leave(self, job: Progress) -> None:
        """Stop drawing when the last job has ended."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
            if not self._jobs:
                self._stop()

    def close(self) -> None:
        """Stop drawing, whatever still runs: a program that ends leaves no line behind."""
        with self._lock:
            self._jobs.clear()
            self._stop()

    def _stop(self) -> None:
        if self._bars is not None:
            self._left.set()
            self._bars.stop()
            self._bars = None

    def _look(self, left: threading.Event) -> None:
        """Look at the tasks of all jobs again and again, on a thread of its own."""
        while not left.wait(_EVERY):
            with self._lock:
                jobs = list(self._jobs)
            for job in jobs:
                job.look()


_SCREEN = _Screen()
atexit.register(_SCREEN.close)


class Progress:
    """Draws a line for a job, and one for each vertex of it that runs, on standard error.

    The line of a vertex has the tasks that are done of all its tasks, the bytes and rows that they read, and the time
    that the others will take if they are like these. The line of the job counts operators: how many tasks later ones
    get is not decided yet.

    Parameters
    ----------
    name
        The job's name.
    look
        Asks how far its running vertices have come; it is asked once a second as long as there is a line to draw.
    called
        Says what people call a vertex.
    """

    def __init__(self, name: str, look: Look = dict, called: Callable[[JobVertex], str] = attrgetter("name")) -> None:
        self._name = name
        self._ask = look
        self._called = called
        self._bars: Bars | None = None
        self._total: TaskID | None = None
        self._lines: dict[JobVertexID, TaskID] = {}
        self._in_vertices = self._done = self._pending = 0
        self._lock = threading.Lock()  # of the lines: events and looks come on different threads
        self._is_over = False

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Draw what has happened; part of `JobStatusListener`."""
        with self._lock:
            if self._is_over:
                return
            if self._bars is None or self._total is None:
                self._bars = _SCREEN.enter(self)
                self._total = self._bars.add_task(
                    self._name, total=None, unit="operators", read=(), foresees=False, job=self
                )
            for event in events:
                self._take(event, self._bars)
            self._bars.update(self._total, total=self._in_vertices + self._pending, completed=self._done)
            if self._is_over:
                # Not those that are known here: Ctrl-C may have come between drawing a line and noting it.
                for line in [task.id for task in self._bars.tasks if task.fields["job"] is self]:
                    self._bars.remove_task(line)
        if self._is_over:
            _SCREEN.leave(self)

    def look(self) -> None:
        """Draw how far the running vertices have come."""
        if not self._lines:
            return
        try:
            found = self._ask()
        except Exception:  # noqa: BLE001 - Spark has ended, or does not know; the job goes on, and so do its lines
            return
        with self._lock:
            for vertex_id, counts in found.items():
                line = self._lines.get(vertex_id)
                if line is not None and self._bars is not None and not self._is_over:
                    self._bars.update(
                        line, completed=counts.done, total=max(counts.total, counts.done), read=_read(counts)
                    )

    def _take(self, event: JobStatusEvent, bars: Bars) -> None:
        match event:
            case VerticesCreated(vertices, pending):
                self._in_vertices += sum(len(one.vertex.node_ids) for one in vertices)
                self._pending = pending
            case VertexChanged(vertex):
                self._draw(vertex, bars)
            case JobStateChanged(state, pending):
                self._pending, self._is_over = pending, state.is_terminal

    def _draw(self, one: VertexSnapshot, bars: Bars) -> None:
        key = one.vertex.id
        if one.state is ExecutionState.RUNNING and key not in self._lines:
            self._lines[key] = bars.add_task(
                f"  {key.removeprefix('v')} {self._called(one.vertex)}",
                total=one.parallelism,
                visible=len(self._lines) < _SHOWN,
                unit="tasks",
                read=(),
                foresees=True,
                job=self,
            )
        elif one.state.is_terminal and key in self._lines:
            bars.remove_task(self._lines.pop(key))
            for line in list(self._lines.values())[:_SHOWN]:
                bars.update(line, visible=True)
        if one.state is ExecutionState.FINISHED:
            self._done += len(one.vertex.node_ids)


def _read(counts: Counts) -> tuple[str, ...]:
    """Return what was read; a source that makes its rows reads no bytes."""
    size = (show_bytes(counts.bytes_read),) if counts.bytes_read else ()
    return (*size, show_rows(counts.rows_read)) if counts.rows_read else size
