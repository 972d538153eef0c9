"""Duration of a vertex, from the timestamps of its states."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events import job_events
from penstock.events.job_events import ExecutionState, VertexSnapshot

VERTEX: Any = None
TIMES: dict[str, tuple[dict[ExecutionState, float], float]] = {
    "not begun": ({ExecutionState.SCHEDULED: 10.0}, 0.0),
    "running": ({ExecutionState.SCHEDULED: 10.0, ExecutionState.RUNNING: 12.0}, 88.0),
    "finished": ({ExecutionState.RUNNING: 12.0, ExecutionState.FINISHED: 15.0}, 3.0),
    "failed": ({ExecutionState.RUNNING: 12.0, ExecutionState.FAILED: 16.0}, 4.0),
    "cancelled": ({ExecutionState.RUNNING: 12.0, ExecutionState.CANCELED: 17.0}, 5.0),
    "cancelled before it ran": ({ExecutionState.SCHEDULED: 10.0, ExecutionState.CANCELED: 17.0}, 0.0),
}


@pytest.mark.parametrize("case", TIMES)
def test_seconds(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setattr(job_events.time, "time", lambda: 100.0)
    times, expected = TIMES[case]
    assert VertexSnapshot(VERTEX, timestamps=times).seconds == expected
