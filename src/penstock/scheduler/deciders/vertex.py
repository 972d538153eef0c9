"""Decides a vertex before it runs: tasks per input, split sizes of sources, subpartitions to write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.decisions import Choice, DecisionKind, DecisionLog, Told, VertexRef
from penstock.estimates import Estimate, Unit
from penstock.execution.reads import VertexSetup
from penstock.graph import ScanOperator
from penstock.graph.naming import column_names
from penstock.graph.operators import ADDS_TASKS
from penstock.graph.partitioner import BroadcastPartitioner
from penstock.graph.wording import listed, table_name, vertex_name
from penstock.scheduler.deciders.exchange_tasks import LEFT_TO_SPARK, DecidedExchange, ExchangeDecider
from penstock.scheduler.deciders.known_bytes import KnownBytes, total
from penstock.scheduler.deciders.outputs import OutputDecider
from penstock.scheduler.deciders.python_steps import PythonSteps
from penstock.scheduler.deciders.settings import ParallelismSettings
from penstock.scheduler.deciders.sources import DecidedSource, SourceDecider
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Executor, Future

    from penstock.config import Configuration
    from penstock.connectors.base import KeyFilter
    from penstock.events import VertexSnapshot
    from penstock.execution.context import GraphOwner
    from penstock.execution.results import Results
    from penstock.execution.sink_writer import SinkTrials
    from penstock.graph import JobVertex, StreamEdge
    from penstock.planner.plan import JobPlan


@dataclass(frozen=True, slots=True)
class DecidedVertex:
    """What was decided for a vertex.

    Parameters
    ----------
    setup
        What its runner needs.
    parallelism
        The number of tasks, None where Spark's own plan has the say.
    reason
        One sentence.
    bytes_in
        Bytes it reads, None if they are not known.
    """

    setup: VertexSetup
    parallelism: int | None
    reason: str
    bytes_in: int | None


class VertexDecider:
    """Decides vertices of one job.

    Parameters
    ----------
    plan
        The job's plan.
    config
        The options.
    cores
        How many tasks the cluster runs at a time.
    owner
        Has the stream graph.
    results
        What finished vertices have written.
    sinks
        Tries sinks with a part of their rows.
    log
        Takes the decisions.
    made
        Returns the vertices made so far, as they are now.
    """

    def __init__(
        self,
        plan: JobPlan,
        config: Configuration,
        cores: int,
        owner: GraphOwner,
        results: Results,
        sinks: SinkTrials,
        log: DecisionLog,
        made: Callable[[], Iterable[VertexSnapshot]] = tuple,
    ) -> None:
        self._plan = plan
        self._owner = owner
        self._log = log
        self._settings = ParallelismSettings.of(config, cores)
        self._columns = column_names(plan.graph)
        known = KnownBytes(plan, owner, results)
        python = PythonSteps(plan, owner, cores, made)
        self._sources = SourceDecider(plan, self._settings, python)
        self._outputs = OutputDecider(plan, self._settings, owner, known, python, log)
        self._inputs = ExchangeDecider(plan, self._settings, owner, results, known, sinks, self._outputs, python, log)

    def ask(self, vertex: JobVertex, node_id: int, askers: Executor, keys: KeyFilter | None = None) -> Future[int]:
        """Ask a source of a vertex for its parallelism, unless that is not left to it.

        Parameters
        ----------
        vertex, node_id
            The vertex, and the source in it.
        askers
            Where it is asked.
        keys
            The keys by which its rows are filtered, if they are.
        """
        return self._sources.ask(vertex, node_id, self._given(vertex, node_id), askers, keys)

    def decide(self, vertex: JobVertex, inferred: Mapping[int, int]) -> DecidedVertex:
        """Decide a vertex whose upstream has finished.

        Parameters
        ----------
        vertex
            The vertex.
        inferred
            The answers of its sources, by node.
        """
        sources = {
            node_id: self._sources.decide(vertex, node_id, self._given(vertex, node_id), inferred[node_id])
            for node_id in vertex.node_ids
            if node_id in self._plan.sources
        }
        inputs = [self._decided(vertex, edges) for edges in self._groups(vertex).values()]
        read: list[DecidedSource | DecidedExchange] = [*sources.values(), *inputs]
        numbers = [one.parallelism for one in read if one.parallelism is not None]
        parallelism = sum(numbers) if read and len(numbers) == len(read) else None
        named = [f"{one.name}: {one.reason}" if len(sources) > 1 else one.reason for one in sources.values()]
        reason = "; ".join(dict.fromkeys([*named, *(one.reason for one in inputs)])) or "nothing to read"
        bytes_in = total(one.bytes_in for one in read)
        kind = DecisionKind.SOURCE_PARALLELISM if sources and not inputs else DecisionKind.VERTEX_PARALLELISM
        self._record(vertex, kind, parallelism, reason, bytes_in, sources)
        slots = self._outputs.slots(vertex, parallelism)
        setup = VertexSetup(
            edges={edge_id: how for one in inputs for edge_id, how in one.reads.items()},
            scans={node_id: one.split.settings for node_id, one in sources.items() if one.split.settings},
            subpartitions=self._outputs.subpartitions(vertex, slots),
            slots=slots,
        )
        return DecidedVertex(setup, parallelism, reason, bytes_in)

    def _decided(self, vertex: JobVertex, edges: list[StreamEdge]) -> DecidedExchange:
        """Decide inputs that are cut alike; a number for all steps holds up to the step's own maximum."""
        given, most = self._given(vertex, edges[0].target_id), vertex.max_parallelism
        fixed = self._settings.fixed
        if given is not None or fixed is None or most is None or fixed <= most:
            return self._inputs.decide(edges, vertex, given or fixed)
        decided = self._inputs.decide(edges, vertex, most)
        if decided.parallelism != most:  # it was decided by something else
            return decided
        return replace(decided, reason=f"{decided.reason}, the most tasks of this step")

    def _record(
        self,
        vertex: JobVertex,
        kind: DecisionKind,
        parallelism: int | None,
        reason: str,
        bytes_in: int | None,
        sources: Mapping[int, DecidedSource],
    ) -> None:
        bounds = self._settings.bounds
        figures = ({} if bytes_in is None else {"bytes in": bytes_in}) | {
            "volume per task": bounds.volume_per_task,
            "minimum": bounds.minimum,
            "maximum": bounds.maximum,
        }
        chosen = parallelism if parallelism is not None else "left to Spark"
        subject = VertexRef(vertex.id, vertex.name, vertex.node_ids)
        told = self._told(vertex, parallelism, reason, sources)
        self._log.record(Choice(kind, subject, chosen, reason, figures, told))

    def _told(
        self, vertex: JobVertex, parallelism: int | None, reason: str, sources: Mapping[int, DecidedSource]
    ) -> Told:
        """Return how people are told of the tasks of a vertex; of one that reads sources, with what they hold."""
        tasks = "Spark sets the number of tasks" if parallelism is None else show_count(parallelism, "task")
        name = vertex_name(self._owner.graph, vertex, self._columns)
        tables = tuple(dict.fromkeys(table_name(one.name) for one in sources.values()))
        held = total(self._rows(node_id) for node_id in sources)
        estimate = None
        if sources and held is not None:
            estimate = Estimate(f"rows read from {listed(tables, 'tables')}", Unit.ROWS, held)
        # That a source got what it asked for is no news.
        why = reason.removesuffix(f": the source asks for {tasks}").removesuffix(LEFT_TO_SPARK)
        return Told(f"{name}: {tasks}, as {why}", None, estimate, tables=tables, is_shown=bool(tables), place=name)

    def _rows(self, node_id: int) -> int | None:
        """Return about how many rows a source has, None if nobody has asked it."""
        operator = self._owner.graph.node(node_id).operator
        return operator.rows if isinstance(operator, ScanOperator) else None

    def compare(self, vertex: JobVertex) -> None:
        """Compare what was foreseen of the exchange behind a vertex that has run with what has been written."""
        self._outputs.compare(vertex)

    def _given(self, vertex: JobVertex, node_id: int) -> int | None:
        """Return the number of tasks that a user asked for where one of its nodes reads, or None.

        It may have been asked for at any operator behind that node, up to one that adds other tasks.
        """
        graph = self._owner.graph
        while (node := graph.node(node_id)).kind not in ADDS_TASKS:
            if node.parallelism is not None:
                return node.parallelism
            following = [edge.target_id for edge in graph.out_edges(node_id) if edge.target_id in vertex.node_ids]
            if not following:
                return None
            (node_id,) = following
        return None

    def _groups(self, vertex: JobVertex) -> dict[int, list[StreamEdge]]:
        """Return the exchanged inputs of a vertex, by exchange group: those of a group are cut alike."""
        found: dict[int, list[StreamEdge]] = {}
        for edge in (job_edge.stream_edge for job_edge in vertex.inputs):
            if not isinstance(edge.partitioner, BroadcastPartitioner):
                found.setdefault(self._plan.groups[edge.id], []).append(edge)
        return found
