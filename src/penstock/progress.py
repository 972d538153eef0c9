"""Progress bars on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from penstock.scheduler.execution_graph import ExecutionState

if TYPE_CHECKING:
    from rich.progress import TaskID

    from penstock.scheduler.job import Job


class Progress:
    """Draws a bar for the operators of a job and a line for each running vertex, on standard error."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._lines: dict[str, TaskID] = {}
        self._total = self._bars.add_task(job.name, total=None)
        self._started = False

    def on_job_changed(self) -> None:
        """Draw what is known now."""
        if not self._started:
            self._started = True
            self._bars.start()
        vertices = self._job.vertices
        frozen = sum(len(execution.vertex.node_ids) for execution in vertices)
        done = sum(
            len(execution.vertex.node_ids) for execution in vertices if execution.state is ExecutionState.FINISHED
        )
        self._bars.update(self._total, total=frozen + self._job.pending_operators, completed=done)
        for execution in vertices:
            line = self._lines.get(execution.vertex.id)
            if execution.state is ExecutionState.RUNNING and line is None:
                text = f"  {execution.vertex.id} {execution.vertex.name[:60]} x{execution.parallelism or 1}"
                self._lines[execution.vertex.id] = self._bars.add_task(text, total=None)
            elif execution.state.is_terminal and line is not None:
                self._bars.remove_task(self._lines.pop(execution.vertex.id))
        ended = done == frozen and self._job.pending_operators == 0
        if ended or any(execution.state in {ExecutionState.FAILED, ExecutionState.CANCELED} for execution in vertices):
            self._bars.stop()
