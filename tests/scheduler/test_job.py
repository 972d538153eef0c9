"""The end of a job, without Spark: `Job._begin` runs any function that takes a commit. See also tests/scheduler/test_hanging_calls.py."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Never

import pytest

from penstock.base.threads import track_work
from penstock.connectors import SinkJob
from penstock.decisions.log import DecisionKind
from penstock.errors import JobCancelledError, JobError
from penstock.events import DecisionRecorded, ErrorOccurred, JobStateChanged
from penstock.history.lines import EventLines
from penstock.scheduler.job import Job
from penstock.scheduler.origin import QueryOrigin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RecordingSink(SinkJob):
    """A sink's job that records its calls, and first runs a function for each."""

    def __init__(self, **calls: Any) -> None:
        self.calls = calls
        self.did: list[str] = []

    def write(self, df: DataFrame) -> Never:
        raise NotImplementedError

    def commit(self) -> None:
        self.calls.get("commit", lambda: None)()
        self.did.append("commit")

    def abort(self) -> None:
        self.calls.get("abort", lambda: None)()
        self.did.append("abort")


class StateListener:
    """A listener that records states, and runs a function at the end."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.states: list[str] = []

    def watch(self, job: Any) -> Any:
        job.watch(self)
        return self

    def on_events(self, events: Any) -> None:
        self.states += [event.state for event in events if isinstance(event, JobStateChanged)]
        if self.states and self.states[-1].is_terminal:
            self.call()


def started(run: Any, *sinks: Any) -> Any:
    job = Job("nightly")
    job._begin(None, run, list(sinks))
    return job


@pytest.fixture
def free() -> Iterator[Any]:
    event = threading.Event()
    yield event
    event.set()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def cancelled(job: Any) -> Any:
    """Cancel a job; return its error, and check that it ended in time."""
    begun = time.monotonic()
    job.cancel("enough")
    with pytest.raises(JobCancelledError) as raised:
        job.wait(10)
    assert time.monotonic() - begun < 5  # two seconds are guaranteed, but other tests run at the same time
    assert job.state == "CANCELED"
    assert job.ended is not None
    return raised.value


def test_a_job_commits_and_finishes() -> None:
    sink = RecordingSink()
    job = started(lambda commit: commit(), sink).wait(10)
    assert (job.state, sink.did, job.error) == ("FINISHED", ["commit"], None)
    job.cancel()
    assert job.state == "FINISHED"


@pytest.mark.parametrize("name", ["copy password=hunter2", "SELECT aes_encrypt(c, 'hunter2')"])
def test_secrets_in_the_name_are_masked_everywhere(name: str) -> None:
    job = Job(name, QueryOrigin.of(None, None, name))
    job.cancel("enough")
    assert "hunter2" not in f"{job.name} {job.origin} {job._ending.cancel_error()}"


def test_a_failed_job_cleans_up() -> None:
    sinks = RecordingSink(abort=lambda: 1 / 0), RecordingSink()
    job = started(lambda commit: [].pop(), *sinks)
    with pytest.raises(JobError, match="pop from empty list"):
        job.wait(10)
    assert [sink.did for sink in sinks] == [[], ["abort"]]
    assert job.state == "FAILED"


@pytest.mark.thorough
def test_a_thread_that_hung_before_the_commit_does_not_commit_later(free: Any) -> None:
    sink = RecordingSink()

    def run(commit: Any) -> None:
        with track_work("thinking"):
            free.wait()
        commit()

    job = started(run, sink)
    error = cancelled(job)
    assert f"threads were left running: thinking (thread penstock-{job.id})" in error.message
    (decision,) = job.decisions
    assert (decision.kind, decision.chosen) == (DecisionKind.CANCEL, "1 thread left running")
    assert sink.did == []
    free.set()
    wait_until(lambda: sink.did)
    assert sink.did == ["abort"]
    assert job.error is error
    assert job.state == "CANCELED"


def test_a_hanging_commit_is_reported_and_completed(free: Any) -> None:
    committing = threading.Event()
    first, second = RecordingSink(commit=lambda: (committing.set(), free.wait())), RecordingSink()
    job = started(lambda commit: commit(), first, second)
    assert committing.wait(10)
    error = cancelled(job)
    assert "making what the sinks wrote visible" in error.message
    assert "check the targets" in error.hint
    free.set()
    wait_until(lambda: second.did)
    assert first.did + second.did == ["commit", "commit"]


def test_a_commit_that_ends_in_time_wins() -> None:
    committing = threading.Event()
    sink = RecordingSink(commit=lambda: (committing.set(), time.sleep(0.4)))
    job = started(lambda commit: commit(), sink)
    assert committing.wait(10)
    job.cancel("enough")
    assert job.wait(10).state == "FINISHED"
    (decision,) = job.decisions
    assert (decision.chosen, sink.did) == ("came too late", ["commit"])


@pytest.mark.thorough
def test_a_cleanup_that_hangs(free: Any) -> None:
    aborting = threading.Event()
    sink = RecordingSink(abort=lambda: (aborting.set(), free.wait()))
    job = started(lambda commit: [].pop(), sink)
    assert aborting.wait(10)
    assert "removing what the sinks wrote" in cancelled(job).message


@pytest.mark.thorough
def test_a_listener_that_hangs(free: Any) -> None:
    job = Job("nightly")
    StateListener(free.wait).watch(job)
    job._begin(None, lambda commit: free.wait(), [])
    cancelled(job)


@pytest.mark.thorough
def test_listeners_are_notified_of_the_end_before_waiters(free: Any) -> None:
    job = Job("nightly")
    listener = StateListener(lambda: time.sleep(0.1)).watch(job)
    job._begin(None, lambda commit: free.wait(), [])
    cancelled(job)
    assert listener.states == ["RUNNING", "CANCELED"]


@pytest.mark.parametrize(
    ("run", "state", "kinds"),
    [
        (lambda commit: commit(), "FINISHED", []),
        (lambda commit: [].pop(), "FAILED", [ErrorOccurred]),
    ],
)
def test_events_of_a_job(run: Any, state: str, kinds: Any) -> None:
    job = started(run)
    job.wait_silently()
    assert list(map(type, job.events)) == [JobStateChanged, *kinds, JobStateChanged]
    assert [event.state for event in job.events if isinstance(event, JobStateChanged)] == ["RUNNING", state]
    assert [event.error for event in job.events if isinstance(event, ErrorOccurred)] == [job.error] * len(kinds)
    assert job.events[-1].at == job.ended
    late = StateListener(lambda: None).watch(job)
    assert late.states == ["RUNNING", state]


def test_an_error_has_the_same_traceback_every_time() -> None:
    """Each `wait` extends the traceback of the error, which neither events nor the next `wait` may show."""
    job = started(lambda commit: [].pop())
    lengths, traces = [], []
    for _ in range(3):
        with pytest.raises(JobError) as raised:
            job.wait(10)
        lengths.append(len(list(traceback.walk_tb(raised.value.__traceback__))))
        lines = EventLines()
        traces += [
            line["trace"] for event in job.events for line in lines.lines_of(event) if line["type"] == "exception"
        ]
    assert len(set(lengths)) == len(set(traces)) == 1
    assert "IndexError: pop from empty list" in traces[0]


@pytest.mark.thorough
def test_events_after_the_end_are_ignored(free: Any) -> None:
    job = started(lambda commit: (free.wait(), commit()), sink := RecordingSink())
    cancelled(job)
    events = job.events
    assert list(map(type, events)) == [JobStateChanged, DecisionRecorded, ErrorOccurred, JobStateChanged]
    free.set()
    wait_until(lambda: sink.did)
    assert job.events == events


def test_a_job_that_is_cancelled_before_it_starts_runs_nothing() -> None:
    ran, sink = [], RecordingSink()
    job = Job("nightly")
    job.cancel("enough")
    job._begin(None, lambda commit: ran.append(1), [sink])
    with pytest.raises(JobCancelledError):
        job.wait(10)
    wait_until(lambda: sink.did)
    assert (ran, sink.did, job.state) == ([], ["abort"], "CANCELED")


@pytest.mark.thorough
def test_a_job_that_is_cancelled_during_planning_does_not_start() -> None:
    job = Job("nightly")
    job.cancel("enough")
    with pytest.raises(JobCancelledError):
        job.wait(3)
    job._begin(None, lambda commit: commit(), [])
    time.sleep(0.2)
    assert job.state == "CANCELED"


def test_cancelled_from_many_threads(free: Any) -> None:
    job = started(lambda commit: free.wait())
    for _ in range(20):
        threading.Thread(target=job.cancel).start()
    cancelled(job)
    assert len(list(job.decisions)) == 1
