"""Decides a vertex before it runs: the tasks that read its inputs, the splits of its sources, its subpartitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.decisions.estimates import Estimate, Unit
from penstock.decisions.log import Choice, DecisionKind, DecisionLog, Explanation, VertexRef
from penstock.decisions.plain_spark import SHUFFLED_FIGURE
from penstock.execution.context import GraphOwner, VertexSetup
from penstock.graph import JobVertex, ScanOperator, SinkOperator, StreamEdge
from penstock.graph.labels import column_names, listed, table_name, vertex_name
from penstock.graph.operators import CONCATENATING_KINDS
from penstock.graph.partitioner import BroadcastPartitioner, HashPartitioner, RangePartitioner
from penstock.scheduler.deciders.exchange_tasks import SPARK_SETS_TASKS, DecidedExchange, ExchangeDecider, OutputDecider
from penstock.scheduler.deciders.input_estimates import InputEstimates, PythonSteps, sum_or_none
from penstock.scheduler.deciders.sources import DecidedSource, SourceDecider
from penstock.scheduler.resources import ParallelismSettings

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.connectors.core.base import KeyFilter
    from penstock.events import VertexSnapshot
    from penstock.execution.results import Results
    from penstock.execution.sink_writer import SinkTrials
    from penstock.planner.plan import JobPlan


@dataclass(frozen=True, slots=True)
class DecidedVertex:
    """The decision for a vertex; `parallelism` is None if Spark's plan sets it, and `bytes_in` if it is unknown.

    `python_functions` are the names of the vertex's Python functions.
    """

    setup: VertexSetup
    parallelism: int | None
    reason: str
    bytes_in: int | None
    python_functions: tuple[str, ...]


class VertexDecider:
    """Decides the vertices of a job; `vertices` returns the current snapshots of the vertices created so far."""

    def __init__(
        self,
        plan: JobPlan,
        config: Configuration,
        cores: int,
        owner: GraphOwner,
        results: Results,
        sinks: SinkTrials,
        log: DecisionLog,
        vertices: Callable[[], Iterable[VertexSnapshot]] = tuple,
    ) -> None:
        self._plan = plan
        self._owner = owner
        self._log = log
        self._settings = ParallelismSettings.of(config, cores)
        self._columns = column_names(plan.graph)
        estimates = InputEstimates(plan, owner, results)
        self._python = python = PythonSteps(plan, owner, cores, vertices)
        self._sources = SourceDecider(plan, self._settings, python)
        self._outputs = OutputDecider(plan, self._settings, owner, estimates, python, log, self._columns)
        self._exchanges = ExchangeDecider(
            plan, self._settings, owner, results, estimates, sinks, self._outputs, python, log
        )

    def infer_parallelism(
        self, vertex: JobVertex, node_id: int, executor: Executor, key_filter: KeyFilter | None = None
    ) -> Future[int]:
        """Let a source infer its parallelism unless options or a request set it; `key_filter` is its dynamic filter."""
        requested = self._requested(vertex, node_id)
        return self._sources.infer_parallelism(vertex, node_id, requested, executor, key_filter)

    def decide(self, vertex: JobVertex, inferred: Mapping[int, int]) -> DecidedVertex:
        """Decide a vertex whose inputs have finished; `inferred` has the parallelism of its sources, by node."""
        sources = {
            node_id: self._sources.decide(vertex, node_id, self._requested(vertex, node_id), inferred[node_id])
            for node_id in vertex.node_ids
            if node_id in self._plan.sources
        }
        groups = list(self._groups(vertex).values())
        exchanges = [self._decide_exchange(vertex, edges) for edges in groups]
        all_inputs: list[DecidedSource | DecidedExchange] = [*sources.values(), *exchanges]
        numbers = [decided.parallelism for decided in all_inputs if decided.parallelism is not None]
        parallelism = sum(numbers) if all_inputs and len(numbers) == len(all_inputs) else None  # a union's tasks add up
        reasons = [
            f"{source.name}: {source.reason}" if len(sources) > 1 else source.reason for source in sources.values()
        ]
        reasons += [decided.reason for decided in exchanges]
        reason = "; ".join(dict.fromkeys(reasons)) or "nothing to read"
        bytes_in = sum_or_none(decided.bytes_in for decided in all_inputs)
        kind = DecisionKind.SOURCE_PARALLELISM if sources and not exchanges else DecisionKind.VERTEX_PARALLELISM
        bounds = self._settings.bounds
        figures = {"volume per task": bounds.volume_per_task, "minimum": bounds.minimum, "maximum": bounds.maximum}
        figures = figures if bytes_in is None else {"bytes in": bytes_in} | figures
        if len(all_inputs) == len(sources) == 1:
            figures |= next(iter(sources.values())).figures
        is_plain_shuffle = len(all_inputs) == len(groups) == 1 and self._is_plain_shuffle(vertex, groups[0])
        if is_plain_shuffle and bytes_in is not None:
            figures[SHUFFLED_FIGURE] = bytes_in
        chosen = "left to Spark" if parallelism is None else parallelism
        explanation = self._explanation(vertex, parallelism, reason, sources)
        subject = VertexRef(vertex.id, vertex.name, vertex.node_ids)
        self._log.record(Choice(kind, subject, chosen, reason, figures, explanation))
        slots = self._outputs.slots(vertex, parallelism)
        setup = VertexSetup(
            edges={edge_id: read for decided in exchanges for edge_id, read in decided.reads.items()},
            scan_settings={node_id: source.settings for node_id, source in sources.items() if source.settings},
            subpartitions=self._outputs.subpartitions(vertex, slots),
            slots=slots,
        )
        functions = tuple(sorted(self._python.functions_in(vertex.node_ids)))
        return DecidedVertex(setup, parallelism, reason, bytes_in, functions)

    def _is_plain_shuffle(self, vertex: JobVertex, edges: list[StreamEdge]) -> bool:
        """Whether plain Spark, too, shuffles the rows of an exchange group, into the partitions of its settings."""
        is_set = self._settings.fixed is not None or self._requested(vertex, edges[0].target_id) is not None
        return not is_set and all(
            isinstance(edge.partitioner, (HashPartitioner, RangePartitioner))
            and not isinstance(self._owner.graph.node(edge.target_id).operator, SinkOperator)
            for edge in edges
        )

    def _decide_exchange(self, vertex: JobVertex, edges: list[StreamEdge]) -> DecidedExchange:
        """Decide the inputs of an exchange group; the step's maximum limits a number that options fix for all steps."""
        requested, step_maximum = self._requested(vertex, edges[0].target_id), vertex.max_parallelism
        fixed = self._settings.fixed
        if requested is not None or fixed is None or step_maximum is None or fixed <= step_maximum:
            return self._exchanges.decide(edges, vertex, requested or fixed)
        decided = self._exchanges.decide(edges, vertex, step_maximum)
        if decided.parallelism != step_maximum:  # its partitioner or sink determined the number
            return decided
        return replace(decided, reason=f"{decided.reason}, the maximum of this step")

    def _explanation(
        self, vertex: JobVertex, parallelism: int | None, reason: str, sources: Mapping[int, DecidedSource]
    ) -> Explanation:
        """Explain the number of tasks of a vertex, with the estimated rows if it reads sources."""
        tasks = "Spark sets the number of tasks" if parallelism is None else show_count(parallelism, "task")
        name = vertex_name(self._owner.graph, vertex, self._columns)
        tables = tuple(dict.fromkeys(table_name(source.name) for source in sources.values()))
        operators = (self._owner.graph.node(node_id).operator for node_id in sources)
        # The row count is None if the source was not queried for it.
        rows = sum_or_none(operator.rows if isinstance(operator, ScanOperator) else None for operator in operators)
        estimate = None
        if sources and rows is not None:
            estimate = Estimate(f"rows read from {listed(tables, 'tables')}", Unit.ROWS, rows)
        # Omit what `tasks` already says: that a source inferred this number of tasks, or that Spark sets the number.
        shown_reason = reason.removesuffix(f": the source asks for {tasks}").removesuffix(SPARK_SETS_TASKS)
        return Explanation(
            f"{name}: {tasks}, as {shown_reason}", None, estimate, tables=tables, is_shown=bool(tables), location=name
        )

    def compare(self, vertex: JobVertex) -> None:
        """Compare the estimated bytes of the exchange that a finished vertex has written with the actual bytes."""
        self._outputs.compare(vertex)

    def _requested(self, vertex: JobVertex, node_id: int) -> int | None:
        """Return the number of tasks that the user requested for an input of a vertex, or None.

        The request may be at the node or at a later operator, up to an operator (such as a union) whose tasks are the
        sum of the tasks of its inputs.
        """
        graph = self._owner.graph
        while (node := graph.node(node_id)).kind not in CONCATENATING_KINDS:
            if node.parallelism is not None:
                return node.parallelism
            following = [edge.target_id for edge in graph.out_edges(node_id) if edge.target_id in vertex.node_ids]
            if not following:
                return None
            (node_id,) = following
        return None

    def _groups(self, vertex: JobVertex) -> dict[int, list[StreamEdge]]:
        """Return the exchanged inputs of a vertex by exchange group; the same ranges divide all inputs of a group."""
        groups: dict[int, list[StreamEdge]] = {}
        for edge in (job_edge.stream_edge for job_edge in vertex.inputs):
            if not isinstance(edge.partitioner, BroadcastPartitioner):
                groups.setdefault(self._plan.groups[edge.id], []).append(edge)
        return groups
