"""The output of a vertex, in the form that its consumer reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.execution.context import VertexSetup
from penstock.execution.vertex_runner import write_output
from penstock.graph import AggregateOperator, GroupingSets
from penstock.planner.plan import WriteKind
from penstock.spark.run import exchange
from tests.execution.plans import Plan, job

KIND = WriteKind
CASES: dict[str, tuple[WriteKind | None, VertexSetup, str]] = {
    "a join side": (KIND.SIDE, VertexSetup(subpartitions=64), "rows by k into 64"),
    "files of a target size": (KIND.SIDE, VertexSetup(subpartitions=8, slots=3), "rows by k into 8 of 3 by file"),
    "an operator of the consumer": (KIND.OPERATOR, VertexSetup(subpartitions=64), "operator 1-2(rows)"),
    "round robin": (KIND.ROWS, VertexSetup(subpartitions=5), "rows in turn to 5"),
    "an exchange that was added while the job ran": (None, VertexSetup(subpartitions=5), "rows in turn to 5"),
}


def written_plan(monkeypatch: pytest.MonkeyPatch, kind: WriteKind | None, setup: VertexSetup, **facts: Any) -> Any:
    """Return the plan that runs, whether it aggregates first, and the bytes that DuckDB may use."""
    outputs: list[Any] = []

    class Batches:
        """Records for which plan batches are limited now."""

        limited_for: Any = None

        @contextmanager
        def limit_if_needed(self, session: Any, logical: Plan, node_id: int) -> Iterator[None]:
            self.limited_for = (session, logical, node_id)
            yield
            self.limited_for = None

    batches: Any = Batches()

    def stages(session: Any, logical: Plan, *, pre_aggregated: bool, native: Any) -> str:
        assert batches.limited_for == (session, logical, 1)
        outputs.append((str(logical), pre_aggregated, native.memory if native is not None else None))
        return "stages"

    monkeypatch.setattr(exchange, "write", stages)

    class Relations:
        def run_and_broadcast(self, session: Any, logical: Plan, edge: Any) -> str:
            outputs.append((f"broadcast {logical} to {edge.target_id}", False, None))
            return "relation"

    context = job("1 #> 2", writes={} if kind is None else {"1-2": kind}, **facts)
    if kind is None:
        context = job("1 -> 2", **facts)
    relations: Any = Relations()
    session: Any = "a session"
    logical: Any = Plan("rows")
    result: Any = write_output(context, relations, batches, session, logical, context.graph.edge("1-2"), setup)
    assert result == ("relation" if kind is KIND.BROADCAST else "stages")
    (output,) = outputs
    return output


@pytest.mark.parametrize("case", CASES)
def test_shuffle_outputs(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    kind, setup, expected = CASES[case]
    assert written_plan(monkeypatch, kind, setup) == (expected, False, None)


def test_a_broadcast_output(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written_plan(monkeypatch, KIND.BROADCAST, VertexSetup()) == ("broadcast rows to 2", False, None)


@pytest.mark.parametrize("first", [True, False])
def test_aggregating_before_rows_are_expanded(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    operators = {2: AggregateOperator(None, GroupingSets(1, 4, ()), aggregates_first=first)}
    output = written_plan(monkeypatch, KIND.OPERATOR, VertexSetup(), operators=operators)
    assert output == ("operator 1-2(rows)", first, None)


def test_memory_for_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    output = written_plan(monkeypatch, KIND.OPERATOR, VertexSetup(), native_memory=64 << 20)
    assert output == ("operator 1-2(rows)", False, 64 << 20)
