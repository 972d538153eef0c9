"""What sinks are asked besides their rows: what rows take on disk, by a sample, and what is done behind them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.base import TasksWorth
from penstock.execution import sink_writer
from penstock.execution.python_batches import PythonBatches
from penstock.execution.sink_writer import SinkWriter
from penstock.spark import exchange
from tests.execution.plans import Results, job
from tests.scheduler.results import written

MIB = 1 << 20


def ratio(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], tasks: int, size: int) -> tuple[float, Any]:
    """Return the ratio, and which part of the exchange was written to learn it."""
    read: list[Any] = []
    monkeypatch.setattr(exchange, "read_slices", lambda *given: read.append(given[-1]) or "rows")
    monkeypatch.setattr(sink_writer, "dataframe", lambda *given: given[-1])
    sink: Any = SimpleNamespace(sample_size=lambda df: size)
    context = job("1 #> 2", sinks={2: sink})
    results: Any = Results({1: written(*sizes, tasks=tasks)})
    found = SinkWriter(context, results, PythonBatches()).file_ratio(context.graph.edge("1-2"))
    sessions: Any = context.sessions
    assert sessions.given_back == list(range(1, len(sessions.taken) + 1))
    return found, read


CASES: dict[str, tuple[tuple[int, ...], int, int, float, Any]] = {
    "the largest subpartition, as few of its writers as give a sample": (
        (MIB, 40 * MIB),
        10,
        2 * MIB,
        0.5,
        [[[((1, 2), (0, 1))]]],
    ),
    "several of its writers": ((10 * MIB,), 10, MIB, 0.25, [[[((0, 1), (0, 4))]]]),
    "all of them, where there is little": ((100, 300), 3, 30, 0.1, [[[((1, 2), (0, 3))]]]),
    "nothing was written": ((0, 0), 3, 7, 1.0, []),
    "a sink that cannot tell": ((10 * MIB,), 10, 0, 1.0, [[[((0, 1), (0, 4))]]]),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_on_disk(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    sizes, tasks, size, expected, sample = CASES[case]
    assert ratio(monkeypatch, sizes, tasks, size) == (expected, sample)


FIRST: dict[str, tuple[tuple[int, ...], Any]] = {
    "what one task has written of the largest subpartition": ((3, 40, 8), [[[((1, 2), (0, 1))]]]),
    "nothing was written": ((0, 0), []),
}


@pytest.mark.parametrize("case", FIRST)
def test_first_rows(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    sizes, part = FIRST[case]
    read: list[Any] = []
    monkeypatch.setattr(exchange, "read_slices", lambda *given: read.append(given[-1]) or "rows")
    monkeypatch.setattr(sink_writer, "dataframe", lambda *given: given[-1])
    sink: Any = SimpleNamespace(write_first=lambda df, rows: TasksWorth(rows, str(df)))
    context = job("1 #> 2", sinks={2: sink})
    results: Any = Results({1: written(*sizes)})
    edge = context.graph.edge("1-2")
    vertex: Any = SimpleNamespace(id="2")
    worth = SinkWriter(context, results, PythonBatches()).write_first(vertex, edge)
    assert read == part
    assert (worth is None) is (not part)
    assert worth is None or worth.tasks == 100, "the sink is told how many rows there are in all"
