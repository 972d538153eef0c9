"""Explanation of a plan without running it: the operators as a tree, and the decisions that need no measured data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.masking import mask
from penstock.base.tables import html_of_text
from penstock.base.units import show_count
from penstock.decisions.log import Choice, DecisionKind, DecisionLog
from penstock.decisions.record import displayed_decisions
from penstock.execution.results import NoResults
from penstock.graph import AdaptiveGraphManager
from penstock.graph.labels import column_names, edge_label, node_name, with_column_names
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.scheduler.deciders.vertex import VertexDecider
from penstock.scheduler.resources import resources_of
from penstock.spark.plans.dataframes import executed_plan_text
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan, SparkPlan
    from penstock.spark.bridge.jvm import Bridge

LATER = "decided once the inputs of its step are measured"
_TITLE = f"Plan before it runs. A step reads what is indented below it. A number of tasks that is not shown is {LATER}."


@dataclass(frozen=True, slots=True)
class ExplainedInput:
    """An input of an explained node; `source` is the id of the node that produces the rows.

    `label` describes the partitioner for users, and is empty if rows stay in their task.
    """

    source: int
    partitioner: str
    label: str


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """An explained node of the graph.

    `label` is the label for users, empty if users need not see the node. `parallelism` is the number of tasks, None if
    it is decided later, and `reason` the reason for that number, or when it is decided.
    """

    id: int
    kind: str
    name: str
    label: str
    description: str
    parallelism: int | None
    reason: str
    inputs: tuple[ExplainedInput, ...]


@dataclass(frozen=True)
class ExplainedPlan:
    """The result of `Environment.explain`; `str` returns a text, `as_dict` plain values."""

    nodes: tuple[ExplainedNode, ...]
    decisions: DecisionLog
    planned: tuple[Choice, ...] = ()
    """The planner's choices for these nodes; `as_dict` has them under "notes"."""
    spark_plan: str | None = None
    """Spark's plans of queries that Spark runs unchanged, which have no nodes; else None."""

    @classmethod
    def of_spark(cls, plan: SparkPlan) -> ExplainedPlan:
        """Return the explanation of queries that Spark runs unchanged."""
        decisions = DecisionLog()
        decisions.record(plan.decision("the query"))
        return cls((), decisions, spark_plan="\n".join(executed_plan_text(output.df) for output in plan.outputs))

    @classmethod
    def of(
        cls, bridge: Bridge, config: Configuration, plan: JobPlan, strategies: Sequence[StreamGraphOptimizationStrategy]
    ) -> ExplainedPlan:
        """Return the explanation of a plan, with the decisions that need no measured results; may query sources."""
        decisions = DecisionLog()
        optimizer = StreamGraphOptimizer(strategies, config, resources_of(bridge, config), decisions)
        manager = AdaptiveGraphManager(plan.graph, optimizer.initialize)
        cores, no_results = jobs.cluster_cores(bridge), NoResults()
        decider = VertexDecider(plan, config, cores, plan, no_results, no_results, decisions)
        parallelism_and_reason: dict[int, tuple[int | None, str]] = {}
        with jobs.SparkThreads(1, "penstock-explain", bridge) as executor:
            for vertex in manager.job_graph:
                inferred = {
                    node_id: decider.infer_parallelism(vertex, node_id, executor).result()
                    for node_id in vertex.node_ids
                    if node_id in plan.sources
                }
                decision = decider.decide(vertex, inferred)
                parallelism_and_reason |= dict.fromkeys(vertex.node_ids, (decision.parallelism, decision.reason))
        names = column_names(plan.graph)
        nodes = tuple(
            ExplainedNode(
                node.id,
                node.kind.value,
                node.name,
                node_name(plan.graph, node, names),
                mask(node.description),
                *parallelism_and_reason.get(
                    node.id,
                    (node.parallelism, "set by the user" if node.parallelism is not None else LATER),
                ),
                tuple(
                    ExplainedInput(
                        edge.source_id,
                        with_column_names(str(edge.partitioner), names),
                        edge_label(edge.partitioner, names),
                    )
                    for edge in plan.graph.in_edges(node.id)
                ),
            )
            for node in plan.graph
        )
        return cls(nodes, decisions, plan.choices)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "nodes": [
                {
                    "id": node.id,
                    "operator": node.kind,
                    "name": node.name,
                    "label": node.label,
                    "description": node.description,
                    "parallelism": node.parallelism,
                    "reason": node.reason,
                    "inputs": [{"source": edge.source, "partitioner": edge.partitioner} for edge in node.inputs],
                }
                for node in self.nodes
            ],
            "decisions": [decision.as_dict() for decision in self.decisions],
            "notes": [
                {
                    "subject": str(choice.subject),
                    "chosen": choice.chosen,
                    "reason": choice.reason,
                    "sentence": choice.displayed.sentence,
                }
                for choice in self.planned
            ],
            "spark_plan": self.spark_plan,
        }

    def _repr_html_(self) -> str:
        return html_of_text(str(self))

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if self.spark_plan is not None:
            texts = [decision.text for decision in displayed_decisions(self.decisions.records)]
            return "\n".join([*texts, "Spark's plan", *(f"  {line}" for line in self.spark_plan.splitlines())])
        lines = [_TITLE, *self._tree()]
        read_first = [decision for decision in self.decisions if decision.kind is DecisionKind.BUILD_SIDE_FIRST]
        if read_first:
            lines += ["Join sides that are read first", *(f"- {decision}" for decision in read_first)]
        if self.planned:
            lines += ["Choices of the planner", *(f"- {choice}" for choice in self.planned)]
        return "\n".join(lines)

    def _tree(self) -> Iterator[str]:
        """Yield a line for each node with a label, from the results down to the sources; expand shared nodes once."""
        by_id = {node.id: node for node in self.nodes}
        read_nodes = {edge.source for node in self.nodes for edge in node.inputs}
        printed: set[int] = set()
        todo = [(by_id[node.id], 1, "", "") for node in reversed(self.nodes) if node.id not in read_nodes]
        # Entries: a node, its depth, how its rows reach the node that reads them, and the text of that node's tasks.
        while todo:
            node, depth, distribution, tasks = todo.pop(0)
            is_repeated = node.id in printed
            printed.add(node.id)
            input_depth = depth
            if node.label:
                input_depth += 1
                is_same_step = not distribution and tasks == self._tasks_text(node)
                tasks = self._tasks_text(node)
                suffix = " (see above)" if is_repeated else "" if is_same_step else tasks
                yield "  " * depth + (f"{distribution}: " if distribution else "") + node.label + suffix
                distribution = ""
            if not is_repeated:
                inputs = ((by_id[edge.source], edge.label or distribution) for edge in node.inputs)
                todo[:0] = [(read, input_depth, label, tasks) for read, label in inputs]

    def _tasks_text(self, node: ExplainedNode) -> str:
        if node.parallelism is None:
            return "" if node.reason == LATER else f", {node.reason}"
        return f", {show_count(node.parallelism, 'task')}: {node.reason}"
