"""A vertex with Python functions gets the tasks that these need, unless the user sets a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.events import ExecutionState, VertexSnapshot
from penstock.execution.context import CoalescedRead
from penstock.scheduler.deciders.input_estimates import PythonSteps
from tests.planner.drafts import plan
from tests.scheduler.deciders.cases import CORES, VOLUME, Deciding
from tests.scheduler.results import written

KIB = 1 << 10
SMALL = written(*[100 * KIB] * 8)
"""Less than a task should read by default, but enough for Python functions to need several cores."""
VOLUMES = {VOLUME: "16 mb"}
MAXIMUM = "execution.batch.adaptive.auto-parallelism.max-parallelism"


def python(name: str = "MapInPandas", function: str = "f") -> Any:
    node = plan(name, plan("Range"))
    return replace(node, python_functions=frozenset({function}))


def deciding(top: Any, **facts: Any) -> Any:
    facts["config"] = {**VOLUMES, **facts.get("config", {})}
    return Deciding("1 #> 2\n2 -> 3", tops={2: plan("Project"), 3: top}, results={1: SMALL}, **facts)


@pytest.mark.parametrize("name", ["MapInPandas", "BatchEvalPython", "FlatMapGroupsInPandas", "Aggregate", "Window"])
def test_python_functions_use_all_cores(name: str) -> None:
    decided = deciding(python(name)).decide(3)
    assert decided.parallelism == CORES
    assert decided.setup.read_of("1-2") == CoalescedRead([(0, 2), (2, 4), (4, 6), (6, 8)])
    assert decided.reason == "800.0 KiB of input: it runs Python functions, and there are 4 cores"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"parallelism": {2: 1}}, 1),
        ({"config": {MAXIMUM: 3}}, 3),
        ({"config": {"parallelism.default": 2}}, 2),
        ({"config": {"execution.batch.adaptive.auto-parallelism.enabled": False, "parallelism.default": 1}}, 1),
        ({"config": {VOLUME: "100 kb"}}, 8),  # its bytes need more tasks than its Python functions
    ],
)
def test_user_settings_take_precedence(facts: Any, expected: int) -> None:
    assert deciding(python(), **facts).decide(3).parallelism == expected


def test_the_reason_names_the_limit() -> None:
    decided = deciding(python(), config={MAXIMUM: 3}).decide(3)
    assert decided.reason == (
        f"800.0 KiB of input: it runs Python functions, and there are 4 cores, at most 3 ({MAXIMUM})"
    )


def test_a_vertex_without_python_is_decided_by_its_bytes() -> None:
    assert deciding(plan("Project")).decide(3).parallelism == 1


def test_python_functions_of_an_earlier_step_are_ignored() -> None:
    below = python()
    job = Deciding("1 #> 2", tops={1: below, 2: plan("Aggregate", below)}, results={1: SMALL}, config=VOLUMES)
    edges = {"1-2": replace(job.plan.edges["1-2"], child=below)}
    assert PythonSteps(replace(job.plan, edges=edges), job.manager, CORES, tuple).tasks_needed((2,), 1 << 20) is None


def test_enough_subpartitions_are_written_for_python_functions() -> None:
    job = Deciding("1 #> 2", sources={1: 800 * KIB}, tops={2: python()}, config={**VOLUMES, MAXIMUM: 12})
    assert job.decide(1, {1: -1}).setup.subpartitions == 12
    job = Deciding("1 #> 2", sources={1: 800 * KIB}, tops={2: plan("Project")}, config={**VOLUMES, MAXIMUM: 12})
    assert job.decide(1, {1: -1}).setup.subpartitions == 4


@pytest.mark.parametrize(
    ("function", "seconds", "expected"),
    [
        ("f", 0.1, 1),
        ("f", 4.0, 4),
        ("other", 0.1, 4),  # f has not been measured
    ],
)
def test_measurements_of_the_same_functions_are_used(function: str, seconds: float, expected: int) -> None:
    job = Deciding("1 #> 2\n3 #> 4", tops={2: python(function=function), 4: python()}, results={1: SMALL, 3: SMALL})
    first = next(vertex for vertex in job.manager.job_graph if vertex.tail_id in {1, 3})
    ran = VertexSnapshot(
        replace(first, node_ids=(2,)),
        ExecutionState.FINISHED,
        bytes_in=1 << 20,
        tasks=1,
        timestamps={ExecutionState.RUNNING: 10.0, ExecutionState.FINISHED: 10.0 + seconds},
    )
    need = PythonSteps(job.plan, job.manager, CORES, lambda: [ran]).tasks_needed((4,), 1 << 20)
    assert need is not None
    assert need.tasks == expected


def test_nothing_is_decided_from_unknown_bytes() -> None:
    job = Deciding("1 #> 2", tops={2: python()}, results={1: SMALL})
    assert PythonSteps(job.plan, job.manager, CORES, tuple).tasks_needed((2,), None) is None
