"""Trial writes of sinks: samples that measure bytes on disk, and first rows that measure tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.connectors.core.base import SinkParallelism
from penstock.execution import sink_writer
from penstock.execution.python_batches import PythonBatches
from penstock.execution.sink_writer import SinkWriter
from penstock.spark.run import exchange
from tests.execution.plans import Results, job
from tests.scheduler.results import written

MIB = 1 << 20


def ratio(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], tasks: int, size: int) -> tuple[float, Any]:
    """Return the measured ratio, and the part of the exchange that was written as a sample."""
    read: list[Any] = []
    monkeypatch.setattr(exchange, "read_slices", lambda *args: read.append(args[-1]) or "rows")
    monkeypatch.setattr(sink_writer, "dataframe", lambda *args: args[-1])
    sink: Any = SimpleNamespace(sample_size=lambda df: size)
    context = job("1 #> 2", sinks={2: sink})
    results: Any = Results({1: written(*sizes, tasks=tasks)})
    measured = SinkWriter(context, results, PythonBatches()).file_ratio(context.graph.edge("1-2"))
    sessions: Any = context.sessions
    assert sessions.returned == list(range(1, len(sessions.settings) + 1))
    return measured, read


CASES: dict[str, tuple[tuple[int, ...], int, int, float, Any]] = {
    "the largest subpartition, only as many of its writers as needed": (
        (MIB, 40 * MIB),
        10,
        2 * MIB,
        0.5,
        [[[((1, 2), (0, 1))]]],
    ),
    "several of its writers": ((10 * MIB,), 10, MIB, 0.25, [[[((0, 1), (0, 4))]]]),
    "all writers, if there is little": ((100, 300), 3, 30, 0.1, [[[((1, 2), (0, 3))]]]),
    "nothing was written": ((0, 0), 3, 7, 1.0, []),
    "a sink that cannot measure": ((10 * MIB,), 10, 0, 1.0, [[[((0, 1), (0, 4))]]]),
}


@pytest.mark.parametrize("case", CASES)
def test_bytes_on_disk(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    sizes, tasks, size, expected, sample = CASES[case]
    assert ratio(monkeypatch, sizes, tasks, size) == (expected, sample)


FIRST: dict[str, tuple[tuple[int, ...], Any]] = {
    "the rows of a task in the largest subpartition": ((3, 40, 8), [[[((1, 2), (0, 1))]]]),
    "nothing was written": ((0, 0), []),
}


@pytest.mark.parametrize("case", FIRST)
def test_first_rows(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    sizes, part = FIRST[case]
    read: list[Any] = []
    monkeypatch.setattr(exchange, "read_slices", lambda *args: read.append(args[-1]) or "rows")
    monkeypatch.setattr(sink_writer, "dataframe", lambda *args: args[-1])
    sink: Any = SimpleNamespace(write_first=lambda df, rows: SinkParallelism(rows, str(df)))
    context = job("1 #> 2", sinks={2: sink})
    results: Any = Results({1: written(*sizes)})
    edge = context.graph.edge("1-2")
    vertex: Any = SimpleNamespace(id="2")
    worth = SinkWriter(context, results, PythonBatches()).write_first(vertex, edge)
    assert read == part
    assert (worth is None) is (not part)
    assert worth is None or worth.tasks == 100, "the sink gets the number of all rows"
