"""Progress bars on a terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from penstock.events import ExecutionState, JobStateChanged, VertexChanged, VerticesCreated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.progress import TaskID

    from penstock.events import JobStatusEvent, VertexSnapshot


class _Screen:
    """The terminal, which all jobs that run at the same time draw on together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._jobs = 0

    def enter(self) -> Bars:
        """Return the bars of all jobs, for one more of them."""
        with self._lock:
            self._jobs += 1
            if self._bars is None:
                self._bars = Bars(
                    SpinnerColumn(),
                    TextColumn("{task.description}"),
                    BarColumn(bar_width=24),
                    MofNCompleteColumn(),
                    TimeElapsedColumn(),
                    console=Console(stderr=True),
                    transient=True,
                )
                self._bars.start()
            return self._bars

    def leave(self) -> None:
        """Stop drawing when the last job has ended."""
        with self._lock:
            self._jobs -= 1
            if self._bars is not None and not self._jobs:
                self._bars.stop()
                self._bars = None


_SCREEN = _Screen()


class Progress:
    """Draws a bar for the operators of a job and a line for each running vertex, on standard error.

    Parameters
    ----------
    name
        The job's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._bars: Bars | None = None
        self._total: TaskID | None = None
        self._lines: dict[str, TaskID] = {}
        self._in_vertices = self._done = self._pending = 0
        self._is_over = False

    def on_events(self, events: Sequence[JobStatusEvent]) -> None:
        """Draw what has happened; part of `JobStatusListener`."""
        if self._is_over:
            return
        if self._bars is None or self._total is None:
            self._bars = _SCREEN.enter()
            self._total = self._bars.add_task(self._name, total=None)
        for event in events:
            self._take(event, self._bars)
        self._bars.update(self._total, total=self._in_vertices + self._pending, completed=self._done)
        if self._is_over:
            for line in (self._total, *self._lines.values()):
                self._bars.remove_task(line)
            _SCREEN.leave()

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
        if one.state is ExecutionState.RUNNING:
            text = f"  {one.vertex.id} {one.vertex.name[:60]} x{one.parallelism or 1}"
            self._lines[one.vertex.id] = bars.add_task(text, total=None)
        elif one.state.is_terminal and one.vertex.id in self._lines:
            bars.remove_task(self._lines.pop(one.vertex.id))
        if one.state is ExecutionState.FINISHED:
            self._done += len(one.vertex.node_ids)
