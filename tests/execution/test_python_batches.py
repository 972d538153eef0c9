"""Batches for Python functions, and when Spark must measure them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.execution import python_batches
from penstock.execution.python_batches import PythonBatches, reaches_limit
from penstock.spark.plans.python_batches import BatchLimits

SPARKS = BatchLimits(rows=10_000, bytes=64 << 20)


@pytest.mark.parametrize(
    ("width", "limits", "expected"),
    [
        (0, SPARKS, False),
        (0, BatchLimits(rows=0, bytes=1), False),
        (18, SPARKS, False),
        (6_600, SPARKS, False),
        (6_640, SPARKS, True),
        (18, BatchLimits(rows=0, bytes=64 << 20), True),
        (18, BatchLimits(rows=-1, bytes=64 << 20), True),
        (18, BatchLimits(rows=100, bytes=4096), True),
        (18, BatchLimits(rows=100, bytes=8192), False),
    ],
)
def test_reaches_limit(width: int, limits: BatchLimits, expected: bool) -> None:
    assert reaches_limit(width, limits) is expected


NARROW, UNBOUNDED, NO_FUNCTION = 18, None, 0


@pytest.fixture
def is_measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that runs a step with a row width and inputs, and returns whether its batches are measured."""
    events: list[str] = []

    @contextmanager
    def without_measuring(*_: Any) -> Iterator[None]:
        events.append("begun")
        yield
        events.append("ended")

    def widest_row(plan: Any, bounded: frozenset[int]) -> int | None:
        width, inputs = plan
        return width if bounded >= set(inputs) else None

    monkeypatch.setattr(python_batches, "without_measuring", without_measuring)
    monkeypatch.setattr(python_batches, "widest_row", widest_row)
    monkeypatch.setattr(python_batches, "batch_limits", lambda _: SPARKS)

    def run(batches: PythonBatches, node_id: int, width: int | None, inputs: tuple[int, ...] = ()) -> bool:
        for input_id in inputs:
            edge: Any = SimpleNamespace(source_id=input_id)
            rows: Any = SimpleNamespace(id=input_id)
            batches.add_leaf(edge, rows)
        session, plan = SimpleNamespace(), (width, inputs)
        events.clear()
        with batches.limit_if_needed(session, plan, node_id):  # type: ignore[arg-type]
            within = list(events)
        assert events == ["begun", "ended"][: 2 * len(within)]
        return not within

    return run


def test_steps_with_bounded_inputs_are_not_measured(is_measured: Callable[..., bool]) -> None:
    batches = PythonBatches()
    assert not is_measured(batches, 1, NARROW)
    assert is_measured(batches, 2, NO_FUNCTION)  # there is nothing to measure
    assert not is_measured(batches, 3, NARROW, inputs=(1, 2))


def test_steps_after_an_unbounded_step_are_measured(is_measured: Callable[..., bool]) -> None:
    """They may have to run the earlier step again."""
    batches = PythonBatches()
    assert is_measured(batches, 1, UNBOUNDED)
    assert is_measured(batches, 2, NO_FUNCTION, inputs=(1,))
    assert is_measured(batches, 3, NARROW, inputs=(2,))
    assert not is_measured(batches, 4, NARROW)


def test_a_failed_step_is_not_bounded(is_measured: Callable[..., bool]) -> None:
    batches = PythonBatches()
    session: Any = None
    plan: Any = (NARROW, ())
    with pytest.raises(ValueError, match="lost"), batches.limit_if_needed(session, plan, 1):
        raise ValueError("lost")
    assert is_measured(batches, 2, NARROW, inputs=(1,))


def test_steps_are_measured_if_not_only_spark_runs_them(is_measured: Callable[..., bool]) -> None:
    assert is_measured(PythonBatches(spark_only=False), 1, NARROW)
