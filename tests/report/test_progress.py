from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.events import ExecutionState, JobStateChanged, VertexChanged, VertexSnapshot, VerticesCreated
from penstock.graph import JobVertex
from penstock.report import progress
from penstock.report.progress import Progress
from penstock.spark.run.jobs import TaskCounts
from tests.support.paths import ROOT
from tests.support.terminal import Terminal


def state(reached: Any) -> Any:
    return JobStateChanged(reached, 3)


def vertex(number: Any, reached: Any = ExecutionState.CREATED, parallelism: Any = None) -> Any:
    return VertexSnapshot(JobVertex(f"v{number}", "Calc -> Join", (1, 2), (), None, None), reached, parallelism)


def drawn() -> Any:
    bars = progress._SCREEN._bars
    return [(task.description.strip(), task.completed, task.total) for task in bars.tasks]


def test_concurrent_jobs_share_the_screen() -> None:
    jobs = [Progress("first"), Progress("second")]
    for job in jobs:
        job.on_events([state(ExecutionState.RUNNING)])
    bars = progress._SCREEN._bars
    assert [task.description for task in bars.tasks] == ["first", "second"]
    jobs[0].on_events([state(ExecutionState.CANCELED)])
    jobs[0].on_events([state(ExecutionState.CANCELED)])
    assert [task.description for task in bars.tasks] == ["second"]
    jobs[1].on_events([state(ExecutionState.FINISHED)])
    assert progress._SCREEN._bars is None
    assert bars.finished
    assert not bars.live.is_started


def test_a_job_without_vertices_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    job = Progress("failed before anything ran")
    job.on_events([state(ExecutionState.RUNNING)])
    job.on_events([state(ExecutionState.FAILED)])
    new_threads = set(threading.enumerate()) - before
    for thread in new_threads:
        thread.join(10)  # rich stops its thread without waiting for it
    assert not any(thread.is_alive() for thread in new_threads)


def test_operators_count_when_their_vertex_has_finished() -> None:
    job = Progress("nightly")
    job.on_events([VerticesCreated((vertex(1), vertex(2)), 3)])
    assert drawn() == [("nightly", 0, 7)]
    job.on_events([VertexChanged(vertex(1, ExecutionState.RUNNING, 5))])
    assert drawn() == [("nightly", 0, 7), ("1 Calc -> Join", 0, 5)]
    job.on_events([VertexChanged(vertex(1, ExecutionState.FINISHED))])
    assert drawn() == [("nightly", 2, 7)]
    job.on_events([VertexChanged(vertex(2, ExecutionState.CANCELED))])
    assert drawn() == [("nightly", 2, 7)]
    job.on_events([state(ExecutionState.FAILED)])
    assert progress._SCREEN._bars is None


def test_repeated_events_of_a_vertex_draw_a_single_line() -> None:
    job = Progress("nightly")
    for parallelism in (None, 5, 5):
        job.on_events([VertexChanged(vertex(1, ExecutionState.RUNNING, parallelism))])
    assert [line[0] for line in drawn()] == ["nightly", "1 Calc -> Join"]
    job.on_events([VertexChanged(vertex(1, ExecutionState.FINISHED))])
    assert [line[0] for line in drawn()] == ["nightly"]
    job.on_events([state(ExecutionState.FINISHED)])


def test_the_line_of_a_running_vertex_has_tasks_bytes_and_rows() -> None:
    counts = {"v1": TaskCounts(3, 20, 5 << 20, 1_234_567), "v9": TaskCounts(1, 1, 1, 1)}
    job = Progress("nightly", lambda: counts)
    job.update_counts()  # no vertex runs, so nothing is drawn
    job.on_events([VertexChanged(vertex(1, ExecutionState.RUNNING, 20))])
    job.update_counts()
    assert drawn() == [("nightly", 0, 0), ("1 Calc -> Join", 3, 20)]
    bars = progress._SCREEN._bars
    assert bars.tasks[1].fields["read"] == ("5.0 MiB", "1.2 M rows")
    figures = bars.columns[-1].render(bars.tasks[1]).plain
    assert figures.startswith("3 of 20 tasks  5.0 MiB  1.2 M rows")
    counts["v1"] = TaskCounts(21, 20, 5 << 20, 1_234_567)  # more than decided, as a stage was retried
    job.update_counts()
    assert drawn()[1][1:] == (21, 21)
    job.on_events([state(ExecutionState.FINISHED)])
    job.update_counts()


def test_the_remaining_time_is_estimated() -> None:
    done = [TaskCounts(0, 10, 0, 0)]
    now = [100.0]
    job = Progress("nightly", lambda: {"v1": done[0]})
    job.on_events([VertexChanged(vertex(1, ExecutionState.RUNNING, 10))])
    bars = progress._SCREEN._bars
    bars.get_time = lambda: now[0]
    bars.tasks[1]._get_time = lambda: now[0]
    bars.tasks[1].start_time = 100.0
    for tasks in (0, 1, 2, 3):
        done[0] = TaskCounts(tasks, 10, 0, 0)
        job.update_counts()
        now[0] += 2
    assert bars.columns[-1].render(bars.tasks[1]).plain == "3 of 10 tasks  0:14 left  0:08"
    job.on_events([state(ExecutionState.FINISHED)])


def test_an_error_while_reading_counts_is_ignored() -> None:
    def read_counts() -> Any:
        raise RuntimeError("Spark has ended")

    job = Progress("nightly", read_counts)
    job.on_events([VertexChanged(vertex(1, ExecutionState.RUNNING, 20))])
    job.update_counts()
    assert drawn()[1] == ("1 Calc -> Join", 0, 20)
    job.on_events([state(ExecutionState.FINISHED)])


def test_the_number_of_lines_is_limited() -> None:
    job = Progress("nightly")
    running = [VertexChanged(vertex(number, ExecutionState.RUNNING, 1)) for number in range(13)]
    job.on_events(running)
    visible = [task.visible for task in progress._SCREEN._bars.tasks]
    assert visible == [True] * 11 + [False] * 3
    job.on_events([VertexChanged(vertex(0, ExecutionState.FINISHED))])
    assert sum(task.visible for task in progress._SCREEN._bars.tasks) == 11
    job.on_events([state(ExecutionState.FINISHED)])


def test_ctrl_c_while_the_first_line_is_drawn_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of a job may be delivered on the user's thread."""
    add = progress._Bars.add_task

    def interrupted(self: Any, *arguments: Any, **fields: Any) -> Any:
        add(self, *arguments, **fields)
        raise KeyboardInterrupt

    job = Progress("nightly")
    with monkeypatch.context() as patched:
        patched.setattr(progress._Bars, "add_task", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.on_events([state(ExecutionState.RUNNING)])
    bars = progress._SCREEN._bars
    job.on_events([state(ExecutionState.CANCELED)])
    assert bars.tasks == []
    assert progress._SCREEN._bars is None


PROGRAM = """
import sys, time
sys.path.insert(0, {root!r})
from penstock.report.progress import Progress
from tests.report.test_progress import *

job = Progress("nightly", lambda: {{"v1": TaskCounts(3, 20, 5 << 20, 1234567)}})
job.on_events([VerticesCreated((vertex(1), vertex(2)), 3), VertexChanged(vertex(1, ExecutionState.RUNNING, 20))])
print("it runs")
try:
    job.update_counts()
    time.sleep(60)
except KeyboardInterrupt:
    job.on_events([state(ExecutionState.CANCELED)])
    print("stopped")
"""


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_terminal_and_disappear_at_the_end(tmp_path: Path, width: Any) -> None:
    """Ctrl-C prints ``^C`` after the last line; after a full line, that would wrap to an additional line."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(root=str(ROOT)))
    with Terminal([sys.executable, str(program)], width) as terminal:
        terminal.wait_for("3 of 20 tasks")
        assert sum("of 7 operators" in line for line in terminal.lines) == 1
        assert sum("of 20 tasks" in line for line in terminal.lines) == 1
        assert "5.0 MiB  1.2 M rows" in terminal.text
        terminal.type("\x03")
        terminal.wait_for_exit()
        assert terminal.lines == ["it runs", "stopped"]
    for screen in terminal.screens:
        assert sum("of 20 tasks" in line for line in screen) <= 1
        assert sum("operators" in line for line in screen) <= 1
