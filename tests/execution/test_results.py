"""What is told of what vertices have written, and what is forgotten."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.execution.results import NothingWritten, ResultStore
from penstock.graph import JobVertex, StreamEdge
from penstock.graph.partitioner import BROADCAST
from penstock.spark import exchange, stage_figures
from penstock.spark.exchange import BroadcastResult
from tests.execution.plans import job
from tests.scheduler.results import Written, written

if TYPE_CHECKING:
    from penstock.optimizer import ResultInfo

VERTEX = JobVertex("v1", "n1 -> n2", (1, 2), (), None, None)
RELATION = BroadcastResult(None, 7, 300, 30, 2, 2, None)


def store(result: Any = None) -> ResultStore:
    """Return the results of a job whose vertex reads a source and has written something."""
    found = ResultStore(job("1 -> 2\n2 #> 3", sources=[1]))
    if result is not None:
        found.add(2, result)
    return found


def told(result: Any) -> ResultInfo:
    info = store(result).info(VERTEX)
    assert info is not None
    return info


def test_stages() -> None:
    result = written(30, 10)
    info = told(result)
    assert (info.subpartitions.tolist(), info.rows, info.memory) == ([30, 10], 100, 40)
    assert info.mappers is not None
    assert info.mappers([1]).tolist() == [[2], [2], [2], [2]]
    assert store(result).subpartitions(VERTEX) == [30, 10]


def test_who_wrote_what_is_told_of_one_stage_only() -> None:
    one = written(30, 10)
    two = Written(None, ("a", "b"), one.sizes, rows=100, size_in_bytes=40, tasks=4, mapper_bytes=one.mapper_bytes)
    assert told(two).mappers is None


def test_a_relation() -> None:
    info = told(RELATION)
    assert (info.subpartitions.tolist(), info.rows, info.memory, info.mappers) == ([30], 7, 300, None)
    assert store(RELATION).subpartitions(VERTEX) == [30]


def test_a_sink_writes_nothing_for_others() -> None:
    assert store().info(VERTEX) is None
    assert store().subpartitions(VERTEX) == []
    assert store().get(2) is None


def test_rows_that_scans_have_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, dict[int, str]]] = []

    def scanned_rows(*given: Any) -> dict[int, int]:
        asked.append(given[-2:])
        return {1: 10 * len(asked)}

    monkeypatch.setattr(exchange, "plans_run", lambda result: ["first stage", "second stage"])
    monkeypatch.setattr(stage_figures, "scanned_rows", scanned_rows)
    assert told(written(1)).scanned == {1: 20}
    assert asked == [(stage, {1: "relation 1"}) for stage in ("first stage", "second stage")]


@pytest.mark.parametrize("result", [RELATION, written(1)])
@pytest.mark.parametrize("is_counted_once", [True, False])
def test_scans_of_tasks_that_ran_again_are_unknown(
    monkeypatch: pytest.MonkeyPatch, result: Any, *, is_counted_once: bool
) -> None:
    monkeypatch.setattr(exchange, "plans_run", lambda result: ["a plan"])
    monkeypatch.setattr(stage_figures, "scanned_rows", lambda *_: {1: 10})
    found = told(replace(result, is_counted_once=is_counted_once))
    assert found.scanned == ({1: 10} if is_counted_once else {})


def test_scans_that_do_not_tell_cost_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def plans_run(result: Any) -> list[Any]:
        raise RuntimeError("no metrics")

    monkeypatch.setattr(exchange, "plans_run", plans_run)
    info = told(written(30))
    assert (info.scanned, info.rows) == ({}, 100)


def test_what_has_run() -> None:
    found = store(written(1))
    assert found.get(2) is found.finished(2) is found.staged(2)
    with pytest.raises(KeyError):
        found.finished(1)
    with pytest.raises(AssertionError):
        store(RELATION).staged(2)
    found.release()
    assert found.get(2) is None


def test_a_job_that_does_not_run() -> None:
    nothing = NothingWritten()
    assert nothing.file_ratio(StreamEdge("1-2", 1, 2, BROADCAST)) == 1.0
    with pytest.raises(LookupError, match="node 4"):
        nothing.staged(4)
