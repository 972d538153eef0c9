"""The store of results, and what it reports about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.execution.results import NoResults, ResultStore
from penstock.graph import JobVertex, StreamEdge
from penstock.graph.partitioner import BROADCAST
from penstock.spark.run import exchange, shuffle_statistics
from penstock.spark.run.exchange import BroadcastResult
from tests.execution.plans import job
from tests.scheduler.results import Written, written

if TYPE_CHECKING:
    from penstock.optimizer import ResultInfo

VERTEX = JobVertex("v1", "n1 -> n2", (1, 2), (), None, None)
RELATION = BroadcastResult(None, 7, 300, 30, 2, 2, None)


def store(result: Any = None) -> ResultStore:
    """Return the results of a job whose vertex reads a source and has written a result."""
    results = ResultStore(job("1 -> 2\n2 #> 3", sources=[1]))
    if result is not None:
        results.add(2, result)
    return results


def info_of(result: Any) -> ResultInfo:
    info = store(result).result_info(VERTEX)
    assert info is not None
    return info


def test_stages() -> None:
    result = written(30, 10)
    info = info_of(result)
    assert (info.subpartitions.tolist(), info.rows, info.memory) == ([30, 10], 100, 40)
    assert info.mappers is not None
    assert info.mappers([1]).tolist() == [[2], [2], [2], [2]]
    assert store(result).subpartition_bytes(VERTEX) == [30, 10]


def test_mappers_are_reported_for_a_single_stage_only() -> None:
    single = written(30, 10)
    several = Written(None, ("a", "b"), single.sizes, rows=100, size_in_bytes=40, tasks=4)
    assert info_of(several).mappers is None


def test_a_relation() -> None:
    info = info_of(RELATION)
    assert (info.subpartitions.tolist(), info.rows, info.memory, info.mappers) == ([30], 7, 300, None)
    assert store(RELATION).subpartition_bytes(VERTEX) == [30]


def test_a_sink_has_no_result() -> None:
    assert store().result_info(VERTEX) is None
    assert store().subpartition_bytes(VERTEX) == []
    assert store().get(2) is None


def test_rows_that_scans_have_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, dict[int, str]]] = []

    def scanned_rows(*args: Any) -> dict[int, int]:
        calls.append(args[-2:])
        return {1: 10 * len(calls)}

    monkeypatch.setattr(exchange, "executed_plans", lambda result: ["first stage", "second stage"])
    monkeypatch.setattr(shuffle_statistics, "scanned_rows", scanned_rows)
    assert info_of(written(1)).scanned == {1: 20}
    assert calls == [(stage, {1: "relation 1"}) for stage in ("first stage", "second stage")]


@pytest.mark.parametrize("result", [RELATION, written(1)])
@pytest.mark.parametrize("is_counted_once", [True, False])
def test_scans_are_unknown_if_tasks_may_have_run_again(
    monkeypatch: pytest.MonkeyPatch, result: Any, *, is_counted_once: bool
) -> None:
    monkeypatch.setattr(exchange, "executed_plans", lambda result: ["a plan"])
    monkeypatch.setattr(shuffle_statistics, "scanned_rows", lambda *_: {1: 10})
    info = info_of(replace(result, is_counted_once=is_counted_once))
    assert info.scanned == ({1: 10} if is_counted_once else {})


def test_scans_without_metrics_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def executed_plans(result: Any) -> list[Any]:
        raise RuntimeError("no metrics")

    monkeypatch.setattr(exchange, "executed_plans", executed_plans)
    info = info_of(written(30))
    assert (info.scanned, info.rows) == ({}, 100)


def test_finished_results() -> None:
    results = store(written(1))
    assert results.get(2) is results.finished(2) is results.staged(2)
    with pytest.raises(KeyError):
        results.finished(1)
    with pytest.raises(AssertionError):
        store(RELATION).staged(2)
    results.release()
    assert results.get(2) is None


def test_a_job_that_does_not_run() -> None:
    nothing = NoResults()
    assert nothing.file_ratio(StreamEdge("1-2", 1, 2, BROADCAST)) == 1.0
    with pytest.raises(LookupError, match="node 4"):
        nothing.staged(4)
