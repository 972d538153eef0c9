import threading
from dataclasses import dataclass, field

from penstock import progress
from penstock.progress import Progress
from penstock.scheduler.execution_graph import ExecutionState


@dataclass
class Shown:
    """A job as the bars see it."""

    name: str
    state: ExecutionState = ExecutionState.RUNNING
    vertices: list = field(default_factory=list)
    pending_operators: int = 3


def test_jobs_at_once_draw_on_one_screen():
    jobs = [Shown("one"), Shown("two")]
    shown = [Progress(job) for job in jobs]
    for one in shown:
        one.on_job_changed()
    bars = progress._SCREEN._bars
    assert [task.description for task in bars.tasks] == ["one", "two"]
    jobs[0].state = ExecutionState.CANCELED
    shown[0].on_job_changed()
    shown[0].on_job_changed()
    assert [task.description for task in bars.tasks] == ["two"]
    jobs[1].state = ExecutionState.FINISHED
    shown[1].on_job_changed()
    assert progress._SCREEN._bars is None
    assert bars.finished
    assert not bars.live.is_started


def test_a_job_without_vertices_leaves_no_thread():
    before = set(threading.enumerate())
    job = Shown("failed before anything ran")
    one = Progress(job)
    one.on_job_changed()
    job.state = ExecutionState.FAILED
    one.on_job_changed()
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(10)  # It is told to end, and not waited for.
    assert not any(thread.is_alive() for thread in left)
