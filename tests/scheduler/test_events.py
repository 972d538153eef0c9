"""Events of a job, in order: with real decisions, but without Spark."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.config import Configuration
from penstock.decisions.log import DecisionKind, DecisionLog
from penstock.errors import JobCancelledError, JobError
from penstock.events import (
    ChangeRefused,
    DecisionRecorded,
    DecisionSettled,
    ExecutionState,
    GraphChanged,
    GraphPlanned,
    JobEventBus,
    VertexChanged,
    VerticesCreated,
)
from penstock.execution.vertex_runner import VertexRun
from penstock.graph import StreamEdgeUpdateRequest, StreamNodeUpdateRequest
from penstock.graph.partitioner import REBALANCE
from penstock.history.recorder import JobRecorder
from penstock.optimizer import StreamGraphOptimizationStrategy
from penstock.planner.draft import build_job_plan
from penstock.scheduler import adaptive_batch
from penstock.scheduler.adaptive_batch import AdaptiveBatchScheduler
from penstock.scheduler.job import Job
from penstock.spark.run import jobs
from penstock.testing import RESOURCES, measured
from tests.execution.plans import BOUNDS
from tests.planner.drafts import draft
from tests.scheduler.results import Results, written

SUMMARIES = {
    GraphPlanned: lambda event: f"planned {len(event.graph)}",
    GraphChanged: lambda event: f"changed by {event.change.decision.chosen}",
    ChangeRefused: lambda event: f"refused {event.refused.choice.chosen}",
    VerticesCreated: lambda event: (
        f"created {' '.join(snapshot.vertex.id for snapshot in event.vertices)}, {event.pending_operators} pending"
    ),
    VertexChanged: lambda event: f"{event.vertex.vertex.id} {event.vertex.state}",
    DecisionRecorded: lambda event: f"decided {event.decision.id}: {event.decision.kind} of {event.decision.subject}",
    DecisionSettled: lambda event: f"settled {event.decision.id}: {event.decision.outcome['tasks']} tasks",
}


class Stored(Results):
    def result_info(self, vertex: Any) -> Any:
        return measured(1) if vertex.tail_id in self else None

    def subpartition_bytes(self, vertex: Any) -> Any:
        return self[vertex.tail_id].sizes[0].tolist() if vertex.tail_id in self else []

    def skip_report(self, vertex: Any) -> None:
        """Return None: all rows are needed."""


class Runner:
    """Records that vertices ran; the last vertex is a sink."""

    def __init__(self, before: Any) -> None:
        self.results = self.sinks = Stored()
        self.before = before

    def run(self, vertex: Any, setup: Any, description: Any) -> Any:
        self.before(vertex)
        if vertex.tail_id == 3:
            return VertexRun(None, 5)
        self.results[vertex.tail_id] = written(*[40] * 8)
        return VertexRun(self.results[vertex.tail_id], 4)

    def channel_reports(self, vertex: Any) -> Any:
        return []

    def release(self) -> None:
        self.results.clear()


class Changing(StreamGraphOptimizationStrategy):
    """Requests a change that is applied, and a change that is refused."""

    def on_operators_finished(self, finished: Any, context: Any) -> Any:
        if finished.ids != (1,) or context.stream_graph.edge("2-3").partitioner == REBALANCE:
            return False
        nodes = context.stream_graph.node(2), context.stream_graph.node(1)
        changed = context.change(
            [StreamEdgeUpdateRequest("2-3", REBALANCE)], DecisionKind.STRATEGY, nodes[0], "spread", "it may be uneven"
        )
        late = [StreamNodeUpdateRequest(1, parallelism=3)]
        assert not context.change(late, DecisionKind.STRATEGY, nodes[1], "three", "it comes too late")
        return changed


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    def create(before: Any = lambda vertex: None, text: str = "1 #> 2\n2 #> 3") -> Any:
        monkeypatch.setattr(adaptive_batch, "resources_of", lambda *_: RESOURCES)
        monkeypatch.setattr(adaptive_batch, "broadcast_bounds", lambda *_: BOUNDS)
        monkeypatch.setattr(jobs, "cluster_cores", lambda _: 4)
        monkeypatch.setattr(jobs, "is_local", lambda _: False)
        monkeypatch.setattr(jobs, "activate", lambda _: None)
        monkeypatch.setattr(jobs, "cancel_group", lambda *_: None)
        monkeypatch.setattr(adaptive_batch, "VertexRunner", lambda _: Runner(before))
        account = JobEventBus()
        plan = build_job_plan(draft(text), "nightly")
        log = DecisionLog(account)
        scheduler = AdaptiveBatchScheduler(
            None, None, plan, Configuration.load({}), log, account, "0123", "nightly", {}, [Changing()]
        )
        return scheduler, account

    return create


def summaries(account: Any) -> Any:
    return [SUMMARIES[type(event)](event) for event in account.events]


def test_all_events_of_a_job_in_order(job: Any) -> None:
    scheduler, account = job()
    scheduler.run(lambda: None)
    assert summaries(account) == [
        "planned 3",
        "created v1, 2 pending",
        "v1 SCHEDULED",
        "decided 0: vertex parallelism of v1 n1",
        "decided 1: subpartitions of v1 n1",
        "v1 RUNNING",
        "settled 0: 4 tasks",
        "settled 1: 4 tasks",
        "v1 FINISHED",
        "decided 2: strategy of 2 n2",
        "changed by spread",
        "refused three",
        "created v2, 1 pending",
        "v2 SCHEDULED",
        "decided 3: vertex parallelism of v2 n2",
        "decided 4: subpartitions of v2 n2",
        "v2 RUNNING",
        "settled 2: 4 tasks",
        "settled 3: 4 tasks",
        "settled 4: 4 tasks",
        "settled 4: 4 tasks",  # the estimate for its exchange is compared with the bytes written
        "v2 FINISHED",
        "created v3, 0 pending",
        "v3 SCHEDULED",
        "decided 5: vertex parallelism of v3 n3",
        "v3 RUNNING",
        "settled 5: 5 tasks",
        "v3 FINISHED",
    ]


def test_an_event_has_the_snapshot_of_its_time(job: Any) -> None:
    scheduler, account = job()
    scheduler.run(lambda: None)
    snapshots = [
        event.vertex for event in account.events if isinstance(event, VertexChanged) and event.vertex.vertex.id == "v2"
    ]
    assert [snapshot.state for snapshot in snapshots] == ["SCHEDULED", "RUNNING", "FINISHED"]
    assert [snapshot.parallelism is None for snapshot in snapshots] == [True, False, False]
    assert [(snapshot.tasks, snapshot.rows_out, snapshot.bytes_in) for snapshot in snapshots] == [
        (None, None, None),
        (None, None, 320),
        (4, 100, 320),
    ]
    assert [list(snapshot.subpartitions) for snapshot in snapshots] == [[], [], [40] * 8]
    assert [len(snapshot.timestamps) for snapshot in snapshots] == [2, 3, 4]
    assert snapshots[-1] == scheduler.execution_graph.vertex("v2").snapshot


def test_a_failed_vertex(job: Any) -> None:
    def fail(vertex: Any) -> None:
        if vertex.id == "v2":
            raise RuntimeError("no luck")

    scheduler, account = job(fail)
    with pytest.raises(JobError, match="no luck"):
        scheduler.run(lambda: None)
    assert summaries(account)[-2:] == ["v2 RUNNING", "v2 FAILED"]


def test_cancelled_by_another_thread(job: Any) -> None:
    running, free = threading.Event(), threading.Event()

    def wait(vertex: Any) -> None:
        running.set()
        assert free.wait(10)

    scheduler, account = job(wait, "1 #> 3\n2 #> 4\n3 #> 5\n4 #> 5")
    canceller = threading.Thread(target=lambda: (running.wait(10), scheduler.cancel("enough"), free.set()))
    canceller.start()
    with pytest.raises(JobCancelledError):
        scheduler.run(lambda: None)
    canceller.join()
    last = {event.vertex.vertex.id: event.vertex.state for event in account.events if isinstance(event, VertexChanged)}
    assert last == {execution.vertex.id: execution.state for execution in scheduler.execution_graph}
    assert all(state.is_terminal for state in last.values())
    ends = [
        event.vertex.vertex.id
        for event in account.events
        if isinstance(event, VertexChanged) and event.vertex.state.is_terminal
    ]
    assert len(ends) == len(set(ends))  # each ends once


def test_listeners_receive_events_while_the_job_runs(job: Any) -> None:
    received = []

    class Listener:
        def on_events(self, events: Any) -> None:
            received.extend(events)

    def check(vertex: Any) -> None:
        states = [event.vertex.state for event in received if isinstance(event, VertexChanged)]
        assert states[-1] is ExecutionState.RUNNING

    scheduler, account = job(check)
    account.watch(Listener())
    scheduler.run(lambda: None)
    assert received == account.events


def test_a_late_listener_records_the_same(job: Any) -> None:
    scheduler, account = job()
    watching, late = (JobRecorder(Job("nightly")) for _ in range(2))
    account.watch(watching)
    scheduler.run(lambda: None)
    late.on_events(account.events)
    for recorder in (watching, late):
        record = recorder.record
        assert record.status_counts()["FINISHED"] == len(record.vertices) == 3
        assert [change.decision for change in record.changes] == [2]
        assert record.decisions[2].values["outcome"] == {"tasks": 4, "rows": 100, "bytes": 320}
        assert [refused.because for refused in record.refused] == ["the step has started already"]
    fields = ("nodes", "edges", "vertices", "decisions", "changes", "refused", "pending", "changed", "version")
    assert [getattr(watching.record, name) for name in fields] == [getattr(late.record, name) for name in fields]
