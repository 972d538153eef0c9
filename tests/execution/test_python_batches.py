"""Batches for Python functions: when Spark need not measure them."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.execution import python_batches
from penstock.execution.python_batches import PythonBatches, reaches_limit
from penstock.spark.python_batches import BatchLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
def test_whether_a_batch_may_reach_its_limit(width: int, limits: BatchLimits, expected: bool) -> None:
    assert reaches_limit(width, limits) is expected


NARROW, TEXTS, NO_FUNCTION = 18, None, 0


@pytest.fixture
def is_measured(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that runs a step, and tells whether its batches are measured: its own width, and what it reads."""
    seen: list[str] = []

    @contextmanager
    def unmeasured(*_: Any) -> Iterator[None]:
        seen.append("begun")
        yield
        seen.append("ended")

    def widest_row(plan: Any, known: frozenset[int]) -> int | None:
        width, reads = plan
        return width if known >= set(reads) else None

    monkeypatch.setattr(python_batches, "unmeasured", unmeasured)
    monkeypatch.setattr(python_batches, "widest_row", widest_row)
    monkeypatch.setattr(python_batches, "batch_limits", lambda _: SPARKS)

    def run(batches: PythonBatches, node_id: int, width: int | None, reads: tuple[int, ...] = ()) -> bool:
        for one in reads:
            edge: Any = SimpleNamespace(source_id=one)
            rows: Any = SimpleNamespace(id=one)
            batches.add_leaf(edge, rows)
        session, plan = SimpleNamespace(), (width, reads)
        seen.clear()
        with batches.suited(session, plan, node_id):  # type: ignore[arg-type]
            within = list(seen)
        assert seen == ["begun", "ended"][: 2 * len(within)]
        return not within

    return run


def test_steps_that_read_what_is_known(is_measured: Callable[..., bool]) -> None:
    batches = PythonBatches()
    assert not is_measured(batches, 1, NARROW)
    assert is_measured(batches, 2, NO_FUNCTION)  # there is nothing to measure
    assert not is_measured(batches, 3, NARROW, reads=(1, 2))


def test_steps_that_may_run_one_with_texts_again(is_measured: Callable[..., bool]) -> None:
    batches = PythonBatches()
    assert is_measured(batches, 1, TEXTS)
    assert is_measured(batches, 2, NO_FUNCTION, reads=(1,))
    assert is_measured(batches, 3, NARROW, reads=(2,))
    assert not is_measured(batches, 4, NARROW)


def test_a_step_that_has_failed_is_not_known(is_measured: Callable[..., bool]) -> None:
    batches = PythonBatches()
    session: Any = None
    plan: Any = (NARROW, ())
    with pytest.raises(ValueError, match="lost"), batches.suited(session, plan, 1):
        raise ValueError("lost")
    assert is_measured(batches, 2, NARROW, reads=(1,))


def test_operators_that_are_not_seen(is_measured: Callable[..., bool]) -> None:
    assert is_measured(PythonBatches(all_is_seen=False), 1, NARROW)
