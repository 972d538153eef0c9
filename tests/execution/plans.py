"""Spark plans as text, such as ``Join(scan 1, leaf 2-3)``, to run a vertex without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.decisions.log import DecisionLog
from penstock.engine.interface import NativeExecution
from penstock.execution.context import BroadcastBounds, JobContext
from penstock.graph.partitioner import FORWARD
from penstock.planner.plan import EdgePlan, JobPlan, NodePlan, WriteKind
from penstock.spark.plans import fragment
from penstock.spark.run import exchange
from penstock.testing import stream_graph
from tests.engine.arrow_engine import ENGINE

if TYPE_CHECKING:
    import pytest

    from penstock.execution.results import Result
    from penstock.graph import Operator, Side, StreamGraph
    from penstock.planner.plan import SparkFilterPath


BOUNDS = BroadcastBounds(limit=10 << 20, memory=20 << 20, volume_per_task=16 << 20, max_subpartitions=1000)


class Plan(str):
    """A plan as text."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name of its top operator."""
        return self.partition("(")[0]

    @property
    def children(self) -> tuple[Plan, ...]:
        """Always empty; the tests do not traverse plans."""
        return ()

    @property
    def output(self) -> str:
        """Its columns."""
        return f"columns of {self}"

    @property
    def is_deterministic(self) -> bool:
        """Whether it returns the same rows each time."""
        return "rand" not in self

    def with_children(self, children: Sequence[Plan]) -> Plan:
        """Return the operator over other inputs."""
        return Plan(f"{self}({', '.join(children)})")

    def projected(self, columns: str) -> Plan:
        """Return the plan with other columns."""
        return Plan(f"{columns} in {self}")

    def hashed_by(self, keys: Sequence[str], subpartitions: int) -> Plan:
        """Return its rows hashed by keys."""
        return Plan(f"{self} by {', '.join(keys)} into {subpartitions}")

    def hashed_in_slots(self, keys: Sequence[str], spread_by: Sequence[str], subpartitions: int, slots: int) -> Plan:
        """Return its rows hashed by keys, each subpartition in several parts."""
        return Plan(f"{self} by {', '.join(keys)} into {subpartitions} of {slots} by {', '.join(spread_by)}")

    def rebalanced(self, subpartitions: int) -> Plan:
        """Return its rows distributed round robin."""
        return Plan(f"{self} in turn to {subpartitions}")

    def filtered_by(self, conditions: Sequence[str]) -> Plan:
        """Return the plan with a filter."""
        return Plan(f"{self} where {' and '.join(conditions)}") if conditions else self


class Key(str):
    """An expression as text."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """The text, which identifies the expression."""
        return str(self)

    @property
    def is_attribute(self) -> bool:
        """Whether it is a plain column."""
        return self.isidentifier()

    @property
    def name(self) -> str:
        """The name of the column."""
        return str(self)

    @property
    def sql(self) -> str:
        """The expression as Spark SQL."""
        return str(self)


def _rebuild(top: Plan, replacements: Mapping[Plan, Plan]) -> Plan:
    """Return an operator over the plans that replace its children."""
    return Plan(f"{top}({', '.join(replacements.values())})")


def plans_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the functions that build plans with functions on text."""

    def put(module: Any, **functions: Any) -> None:
        for name, function in functions.items():
            monkeypatch.setattr(module, name, function)

    put(
        fragment,
        rebuild=_rebuild,
        hinted_join=lambda plan, side, strategy: Plan(
            f"merge {plan}" if strategy == "SHUFFLE_MERGE" else f"hash {side} {plan}"
        ),
        placeholder=lambda columns: Plan(f"no rows of {columns}"),
        rdd_leaf=lambda session, columns, rows, **claims: Plan(f"rows of {rows}"),
    )
    put(
        exchange,
        read_ranges=lambda result, ranges: SimpleNamespace(rows=lambda: "result"),
        broadcast_mode=lambda session, join, build, keys: f"mode {build}",
    )


class Sessions:
    """Sessions of a job: numbers, with the settings that were requested for each."""

    properties = None

    def __init__(self) -> None:
        self.settings: list[dict[str, str]] = []
        self.returned: list[int] = []

    def take(self, settings: Mapping[str, str]) -> int:
        self.settings.append(dict(settings))
        return len(self.settings)

    def give_back(self, session: int) -> None:
        self.returned.append(session)

    @contextmanager
    def use(self, settings: Mapping[str, str] | None = None) -> Iterator[int]:
        session = self.take(settings or {})
        yield session
        self.give_back(session)


class Context(JobContext):
    """A job context whose threads need no preparation."""

    __slots__ = ()

    @contextmanager
    def thread(self, session: Any, group: str, description: str) -> Iterator[None]:  # type: ignore[override]
        yield


class Scan:
    """The scan of a source."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.is_closed = False
        self.fallback_reason = ""

    def leaf(self, session: Any = None) -> Plan:
        return Plan(f"scan {self.node_id}" + ("" if session is None else f" in session {session}"))

    def close(self) -> None:
        self.is_closed = True


class Source:
    """A source whose plan is ``scan 1``."""

    def __init__(self, node_id: int) -> None:
        self.coordinator = SimpleNamespace(name=f"table{node_id}")
        self.leaf = Plan(f"relation {node_id}")
        self.filtered = self.leaf
        self.scan = Scan(node_id)


def job(
    text: str,
    operators: Mapping[int, Operator] | None = None,
    *,
    writes: Mapping[str, WriteKind] | None = None,
    sources: Sequence[int] = (),
    passing: Sequence[int] = (),
    keys: Mapping[int, Mapping[Side, tuple[Key, ...]]] | None = None,
    paths: Mapping[int, tuple[SparkFilterPath, ...]] | None = None,
    filters: Mapping[int, Any] | None = None,
    sinks: Mapping[int, Any] | None = None,
    stages: Mapping[int, Any] | None = None,
    exchanges: Mapping[int, Any] | None = None,
    verify: bool = False,
    children: Mapping[str, str] | None = None,
    native_memory: int | None = None,
) -> Context:
    """Return a job with a graph written as text, see `penstock.testing.stream_graph`.

    Parameters
    ----------
    writes
        What is written for an edge, by its id; by default `WriteKind.SIDE`, unless the edge is forward.
    sources
        The nodes that are sources.
    passing
        The nodes without operators of their own.
    keys, paths
        The keys of joins, and their filter paths.
    children
        The consumer's input plan for an edge.
    """
    graph: StreamGraph = stream_graph(text, operators, filters=filters)
    nodes = {
        node.id: NodePlan(
            None if node.id in passing else Plan(f"n{node.id}"),  # type: ignore[arg-type]
            (keys or {}).get(node.id, {}),
            (paths or {}).get(node.id, ()),
        )
        for node in graph
    }
    edges = {}
    for edge in graph.edges:
        kind = (writes or {}).get(edge.id, None if edge.partitioner == FORWARD else WriteKind.SIDE)
        child: Any = Plan((children or {}).get(edge.id, f"input {edge.id}"))
        operator: Any = Plan(f"operator {edge.id}") if kind in {WriteKind.OPERATOR, WriteKind.BROADCAST} else None
        edges[edge.id] = EdgePlan(child, kind, operator, keys=(Key("k"),), spread_by=(Key("file"),))
    plan = JobPlan(
        graph=graph,
        nodes=nodes,
        edges=edges,
        sources={node_id: Source(node_id) for node_id in sources},  # type: ignore[misc]
        groups=dict.fromkeys(edges, 1),
        sink_stages=dict(stages or {}),
        consumer_stages=dict(exchanges or {}),
    )
    bridge: Any = SimpleNamespace(session="the user's session")
    sessions: Any = Sessions()
    native = None if native_memory is None else NativeExecution(ENGINE, native_memory)
    return Context(bridge, sessions, plan, plan, "j1", sinks or {}, DecisionLog(), verify, 100, BOUNDS, native)


class Results:
    """The results of vertices, by node."""

    def __init__(self, results: Mapping[int, Result] | None = None) -> None:
        self.results = dict(results or {})

    def get(self, node_id: int) -> Result | None:
        return self.results.get(node_id)

    def finished(self, node_id: int) -> Result:
        return self.results[node_id]

    def staged(self, node_id: int) -> Any:
        return self.results[node_id]
