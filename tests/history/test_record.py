"""Events are applied to a record atomically while other threads read it."""

from __future__ import annotations

import threading

from penstock.history.record import JobRecord
from penstock.web import views
from tests.history.records import edge, events, node, vertex


def test_readers_see_complete_steps() -> None:
    record = JobRecord()
    record.apply_all(events(ended=False))
    done = threading.Event()

    def grow() -> None:
        for number in range(10, 3000):
            progress = vertex(number, [number], "RUNNING")
            bare = {key: progress[key] for key in ("type", "at", "id", "name", "nodes", "max_parallelism", "inputs")}
            step = [{"type": "nodes", "at": 1.0, "nodes": [node(number, "n")]}, bare, progress]
            record.apply_all([*step, {"type": "edges", "at": 1.0, "edges": [edge(1, number)]}])
        done.set()

    thread = threading.Thread(target=grow)
    thread.start()
    seen = 0
    while not done.is_set():
        answer = views.job_details(record.snapshot(), 20.0)
        assert len(answer["vertices"]) >= seen
        seen = len(answer["vertices"])
    thread.join()
    assert len(record.snapshot().vertices) == len(record.vertices) == 2991


def test_ended_record_is_not_copied() -> None:
    record = JobRecord()
    record.apply_all(events())
    assert record.snapshot() is record
