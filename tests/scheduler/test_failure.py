"""Error messages of failures: the operator, the user's line, and the cause without Java's stack."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.base.location import UserLine
from penstock.errors import JobError, SinkError
from penstock.graph import JobVertex
from penstock.planner.plan import JobPlan, NodePlan
from penstock.scheduler.failure import as_user_error, clear_frames, describe_failure
from penstock.testing import stream_graph

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
    """Return the error of a vertex with three operators."""
    graph = stream_graph(CHAIN)
    changed = [
        replace(
            node,
            description=(descriptions or {}).get(node.id, f"Filter {node.id}"),
            location=UserLine("job.py", lines[node.id]) if node.id in (lines or {}) and lines else None,
        )
        for node in graph
    ]
    plan = JobPlan(graph=graph.replace(changed), nodes={n: NodePlan(None) for n in (1, 2, 3)})
    return describe_failure(plan, JobVertex("v7", "n1 -> n2 -> n3", (1, 2, 3), (), None, None), error)


CASES: dict[str, tuple[BaseException, dict[str, Any], str, str]] = {
    "the last operator, if nothing points to another": (
        RuntimeError(JAVA),
        {},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 3",
        "RuntimeError: Job aborted due to stage failure: Task 3 failed 4 times",
    ),
    "the operator with a line of the user": (
        RuntimeError(JAVA),
        {"lines": {1: 8}},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 1\n  made at:  job.py:8",
        "RuntimeError: Job aborted due to stage failure: Task 3 failed 4 times",
    ),
    "the last operator with a line of the user": (
        RuntimeError(JAVA),
        {"lines": {1: 8, 2: 9}},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 2\n  made at:  job.py:9",
        "RuntimeError: Job aborted due to stage failure: Task 3 failed 4 times",
    ),
    "the operator that runs Python": (
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
    "an operator with the name of the vertex": (
        RuntimeError("no"),
        {"descriptions": {3: "n1 -> n2 -> n3"}},
        "step 7 failed: n1 → n2 → n3",
        "RuntimeError: no",
    ),
    "a full disk that only the stack mentions": (
        RuntimeError("failed while writing rows to file:/out.\n\tat a.B\nCaused by: No space left on device"),
        {},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 3",
        "the disk of file:/out is full; failed while writing rows to file:/out.",
    ),
    "an error without a text": (
        MemoryError(),
        {},
        "step 7 failed: n1 → n2 → n3\n  operator: Filter 3",
        "MemoryError",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_messages(case: str) -> None:
    error, facts, message, cause = CASES[case]
    job_error = failed(error, **facts)
    assert job_error.message == message
    assert job_error.cause == cause


def test_long_descriptions_are_cut() -> None:
    assert len(failed(ValueError("no"), {3: "x" * 5_000}).message) < 400


def test_the_hint_of_a_penstock_error_is_preserved() -> None:
    assert failed(SinkError("it is full", hint="make room")).hint == "make room"
    assert failed(ValueError("no")).hint is None


@pytest.mark.parametrize("error", [SinkError("it is full"), KeyboardInterrupt(), SystemExit(2)])
def test_errors_that_users_see_unchanged(error: BaseException) -> None:
    assert as_user_error(error) is error


def test_any_other_error_becomes_a_job_error() -> None:
    error = ZeroDivisionError("division by zero")
    job_error = as_user_error(error)
    assert isinstance(job_error, JobError)
    assert (job_error.message, job_error.cause) == ("the job failed", "ZeroDivisionError: division by zero")
    assert job_error.__cause__ is error


class Large:
    """A large local variable of a function that fails."""


def raised(call: Callable[[], None]) -> BaseException:
    try:
        call()
    except ZeroDivisionError as error:
        return error
    raise AssertionError("it did not fail")


@pytest.mark.sample(2)
@pytest.mark.parametrize(("module", "is_retained"), [("penstock.scheduler.job", False), ("my_job", True)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_releases_only_our_variables(module: str, is_retained: bool, wrapped: bool) -> None:
    references: list[weakref.ref[Large]] = []
    names: dict[str, Any] = {"__name__": module, "Large": Large, "weakref": weakref, "references": references}
    exec("def fails():\n    large = Large()\n    references.append(weakref.ref(large))\n    1 / 0", names)
    error = raised(names["fails"])
    if wrapped:
        outer = JobError("the job failed")
        outer.__cause__, error = error, outer
    clear_frames(error)
    gc.collect()
    assert (references[0]() is not None) is is_retained
    innermost = error.__cause__ or error
    assert innermost.__traceback__ is not None


def test_forgetting_the_frames_of_no_error() -> None:
    clear_frames(None)


def test_only_the_users_frames_are_shown() -> None:
    machinery = '  File "/x/pyspark.zip/pyspark/worker.py", line 7, in main\n    process()\n    ^^^^^^^^^\n'
    own = '  File "job.py", line 12, in parse\n    int(text)\n'
    start = "Traceback (most recent call last):\n"
    text = f"PythonException: {start}{machinery}{own}{machinery}ValueError: no\nreally\n\nDuring handling, another:\n\n{start}{machinery}KeyError: 1\n\tat java"
    cause = str(failed(RuntimeError(text)).cause)
    assert cause == f"{start}{own}ValueError: no\nreally\n\nDuring handling, another:\n\n{start}{machinery}KeyError: 1"
