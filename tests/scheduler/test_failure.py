"""Failures in words: the operator, the user's line, and the cause without Java's stack."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import JobError, SinkError
from penstock.graph import JobVertex
from penstock.location import SourceLine
from penstock.planner.plan import JobPlan, NodePlan
from penstock.scheduler.failure import cause_of, describe_failure, forget_frames
from penstock.testing import stream_graph

if TYPE_CHECKING:
    from collections.abc import Callable

JAVA = "Job aborted due to stage failure: Task 3 failed 4 times\n\tat org.apache.spark.Scheduler.run(Scheduler.scala:7)"
PYTHON = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "job.py", line 12, in parse\n    int(text)\nValueError: invalid literal\n\n'
    "\tat org.apache.spark.api.python.BasePythonRunner.read(Runner.scala:9)"
)
CALLED = "[CAST_INVALID_INPUT] The value 'x' cannot be cast\n== DataFrame ==\n\"cast\" was called from\njob.py:31\n"
CHAIN = "1 -> 2\n2 -> 3"


def failed(
    error: BaseException, descriptions: dict[int, str] | None = None, lines: dict[int, int] | None = None
) -> JobError:
    """Return the error of a vertex of three operators."""
    graph = stream_graph(CHAIN)
    changed = [
        replace(
            node,
            description=(descriptions or {}).get(node.id, f"Filter {node.id}"),
            location=SourceLine("job.py", lines[node.id]) if node.id in (lines or {}) and lines else None,
        )
        for node in graph
    ]
    plan = JobPlan(graph.replace(changed), {n: NodePlan(None) for n in (1, 2, 3)}, {}, {}, {}, {})
    return describe_failure(plan, JobVertex("v7", "n1 -> n2 -> n3", (1, 2, 3), (), None, None), error)


CASES: dict[str, tuple[BaseException, dict[str, Any], str, str]] = {
    "the last operator, where nothing points at another": (
        RuntimeError(JAVA),
        {},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 3",
        "RuntimeError: Job aborted due to stage failure: Task 3 failed 4 times",
    ),
    "the one whose line is known": (
        RuntimeError(JAVA),
        {"lines": {1: 8}},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 1\n  made at:  job.py:8",
        "RuntimeError: Job aborted due to stage failure: Task 3 failed 4 times",
    ),
    "the last of those whose lines are known": (
        RuntimeError(JAVA),
        {"lines": {1: 8, 2: 9}},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 2\n  made at:  job.py:9",
        "RuntimeError: Job aborted due to stage failure: Task 3 failed 4 times",
    ),
    "the one that runs Python": (
        RuntimeError(PYTHON),
        {"descriptions": {2: "MapInPandas parse"}, "lines": {3: 8}},
        "step 7 failed: n1 → n2 → n3\n  operator: MapInPandas parse",
        (
            'Traceback (most recent call last):\n  File "job.py", line 12, in parse\n    int(text)\n'
            "ValueError: invalid literal"
        ),
    ),
    "the line that Spark names": (
        RuntimeError(CALLED),
        {"lines": {1: 8}},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 3\n  made at:  job.py:31",
        "RuntimeError: [CAST_INVALID_INPUT] The value 'x' cannot be cast\n== DataFrame ==\n\"cast\" was called from\njob.py:31",
    ),
    "an operator that is called as the vertex": (
        RuntimeError("no"),
        {"descriptions": {3: "n1 -> n2 -> n3"}},
        "step 7 failed: n1 → n2 → n3",
        "RuntimeError: no",
    ),
    "an error without a text": (
        MemoryError(),
        {},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 3",
        "MemoryError",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str) -> None:
    error, facts, message, cause = CASES[case]
    found = failed(error, **facts)
    assert found.message == message
    assert found.cause == cause


def test_long_descriptions_are_cut() -> None:
    assert len(failed(ValueError("no"), {3: "x" * 5_000}).message) < 400


def test_penstocks_own_hint_is_kept() -> None:
    assert failed(SinkError("it is full", hint="make room")).hint == "make room"
    assert failed(ValueError("no")).hint is None


@pytest.mark.parametrize("error", [SinkError("it is full"), KeyboardInterrupt(), SystemExit(2)])
def test_errors_that_users_see_as_they_are(error: BaseException) -> None:
    assert cause_of(error) is error


def test_any_other_error_is_one_of_the_job() -> None:
    error = ZeroDivisionError("division by zero")
    found = cause_of(error)
    assert isinstance(found, JobError)
    assert (found.message, found.cause) == ("the job failed", "ZeroDivisionError: division by zero")
    assert found.__cause__ is error


class Held:
    """Something large that a function had when it failed."""


def raised(call: Callable[[], None]) -> BaseException:
    try:
        call()
    except ZeroDivisionError as error:
        return error
    raise AssertionError("it did not fail")


@pytest.mark.sample(2)
@pytest.mark.parametrize(("module", "is_kept"), [("penstock.scheduler.job", False), ("my_job", True)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_that_is_kept_lets_go_of_our_variables_only(module: str, is_kept: bool, wrapped: bool) -> None:
    held: list[weakref.ref[Held]] = []
    names: dict[str, Any] = {"__name__": module, "Held": Held, "weakref": weakref, "held": held}
    exec("def fails():\n    large = Held()\n    held.append(weakref.ref(large))\n    1 / 0", names)
    error = raised(names["fails"])
    if wrapped:
        outer = JobError("the job failed")
        outer.__cause__, error = error, outer
    forget_frames(error)
    gc.collect()
    assert (held[0]() is not None) is is_kept
    innermost = error.__cause__ or error
    assert innermost.__traceback__ is not None


def test_no_error_is_nothing_to_forget() -> None:
    forget_frames(None)


def test_only_the_users_frames_are_shown() -> None:
    machinery = '  File "/x/pyspark.zip/pyspark/worker.py", line 7, in main\n    process()\n    ^^^^^^^^^\n'
    own = '  File "job.py", line 12, in parse\n    int(text)\n'
    start = "Traceback (most recent call last):\n"
    text = f"PythonException: {start}{machinery}{own}{machinery}ValueError: no\nreally\n\nDuring handling, another:\n\n{start}{machinery}KeyError: 1\n\tat java"
    told = str(failed(RuntimeError(text)).cause)
    assert told == f"{start}{own}ValueError: no\nreally\n\nDuring handling, another:\n\n{start}{machinery}KeyError: 1"
