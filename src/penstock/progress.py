"""Progress bars on a terminal."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from penstock.scheduler.execution_graph import ExecutionState

if TYPE_CHECKING:
    from rich.progress import TaskID

    from penstock.scheduler.job import Job


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
    """Draws a bar for the operators of a job and a line for each running vertex, on standard error."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._total: TaskID | None = None
        self._lines: dict[str, TaskID] = {}
        self._is_over = False

    def on_job_changed(self) -> None:
        """Draw what is known now."""
        with self._lock:
            if self._is_over:
                return
            if self._bars is None or self._total is None:
                self._bars = _SCREEN.enter()
                self._total = self._bars.add_task(self._job.name, total=None)
            self._draw(self._bars, self._total)
            if self._job.state.is_terminal:
                self._is_over = True
                for line in (self._total, *self._lines.values()):
                    self._bars.remove_task(line)
                _SCREEN.leave()

    def _draw(self, bars: Bars, total: TaskID) -> None:
        vertices = self._job.vertices
        frozen = sum(len(execution.vertex.node_ids) for execution in vertices)
        done = sum(
            len(execution.vertex.node_ids) for execution in vertices if execution.state is ExecutionState.FINISHED
        )
        bars.update(total, total=frozen + self._job.pending_operators, completed=done)
        for execution in vertices:
            line = self._lines.get(execution.vertex.id)
            if execution.state is ExecutionState.RUNNING and line is None:
                text = f"  {execution.vertex.id} {execution.vertex.name[:60]} x{execution.parallelism or 1}"
                self._lines[execution.vertex.id] = bars.add_task(text, total=None)
            elif execution.state.is_terminal and line is not None:
                bars.remove_task(self._lines.pop(execution.vertex.id))
