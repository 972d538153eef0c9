"""Checks before a vertex runs: every input is read exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import VerificationError
from penstock.execution.context import CoalescedRead, SlicedRead, UnchangedRead, VertexSetup
from penstock.execution.vertex_runner import check_reads
from penstock.graph import JobEdge, JobVertex
from penstock.sizing.skew_cut import Slice
from penstock.spark.run.exchange import BroadcastResult
from tests.execution.plans import Context, Results, job
from tests.scheduler.results import written

RELATION = BroadcastResult(None, 7, 300, 30, 2, 2, None)
LEFT, RIGHT = "1-3", "2-3"


def sliced(*tasks: Slice) -> SlicedRead:
    return SlicedRead([(piece,) for piece in tasks])


FIRST, SECOND = Slice((0, 1)), Slice((1, 2))
HALVES = Slice((0, 1), (0, 2)), Slice((0, 1), (2, 4))
"""The first subpartition, in two slices."""
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing was decided": ({}, ""),
    "whole": ({LEFT: UnchangedRead()}, ""),
    "by ranges": ({LEFT: CoalescedRead([(0, 1), (1, 2)])}, ""),
    "a missing range": ({LEFT: CoalescedRead([(0, 1)])}, "the input 1-3 of the join"),
    "a duplicate range": ({RIGHT: CoalescedRead([(0, 2), (1, 2)])}, "the input 2-3 of the join"),
    "merged in chunks": ({LEFT: CoalescedRead([(0, 2)], {1: [(0, 2), (2, 4)]})}, ""),
    "a missing chunk": ({LEFT: CoalescedRead([(0, 2)], {1: [(0, 2)]})}, "subpartition 1 of the input 1-3"),
    "overlapping chunks": ({LEFT: CoalescedRead([(0, 2)], {1: [(0, 2), (1, 4)]})}, "subpartition 1 of the input"),
    "by slices": ({LEFT: sliced(FIRST, SECOND), RIGHT: sliced(FIRST, SECOND)}, ""),
    "slices joined with the whole other side": (
        {LEFT: sliced(*HALVES, SECOND), RIGHT: sliced(FIRST, FIRST, SECOND)},
        "",
    ),
    "a missing slice": ({LEFT: sliced(HALVES[0], SECOND), RIGHT: sliced(FIRST, SECOND)}, "the join"),
    "halves joined with only a half each": (
        {LEFT: sliced(*HALVES, SECOND), RIGHT: sliced(*HALVES, SECOND)},
        "the join",
    ),
}


def check(context: Context, reads: dict[str, Any], results: dict[int, Any] | None = None) -> None:
    graph = context.plan.graph
    inputs = tuple(JobEdge(edge, "v1", "v3") for edge in graph.in_edges(3))
    store: Any = Results(results or {1: written(40, 40), 2: written(40, 40)})
    check_reads(context, store, JobVertex("v3", "the join", (3,), inputs, None, None), VertexSetup(reads))


@pytest.mark.parametrize("case", CASES)
def test_reads(case: str) -> None:
    reads, problem = CASES[case]
    if not problem:
        check(job("1 #> 3\n2 #> 3"), reads)
        return
    with pytest.raises(VerificationError, match=problem):
        check(job("1 #> 3\n2 #> 3"), reads)


def test_broadcasts_are_not_checked() -> None:
    wrong = {LEFT: CoalescedRead([(0, 1)])}
    check(job("1 *> 3\n2 #> 3"), wrong)
    check(job("1 #> 3\n2 #> 3"), wrong, {1: RELATION, 2: written(40, 40)})


@pytest.mark.parametrize(("wrong", "problem"), [(0, ""), (3, "the splits of table3.*3 of its rows")])
def test_splits_of_sources_that_count_rows(wrong: int, problem: str) -> None:
    context = job("1 #> 3", sources=[3])
    context.plan.sources[3].scan.rows_not_read_once = lambda: wrong  # type: ignore[attr-defined]
    if not problem:
        check(context, {})
        return
    with pytest.raises(VerificationError, match=f"(?s){problem}"):
        check(context, {})
