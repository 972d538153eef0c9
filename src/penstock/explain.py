"""A dry run: the plan as a tree, what sources answer, and what will be decided once data is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.decisions import DecisionKind, DecisionLog
from penstock.execution.results import NothingWritten
from penstock.graph import AdaptiveGraphManager
from penstock.graph.naming import column_names, readable
from penstock.graph.wording import edge_words, node_name
from penstock.masking import mask
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.scheduler.deciders.vertex import VertexDecider
from penstock.scheduler.resources import resources_of
from penstock.spark import jobs
from penstock.spark.dataframes import executed_plan_text
from penstock.tables import html_of_text
from penstock.told import together
from penstock.units import show_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.decisions import Choice
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan
    from penstock.planner.whole_query import WholeQuery
    from penstock.spark.jvm import Bridge

LATER = "decided once the inputs of its step are measured"
_TITLE = f"Plan before it runs. A step reads what is indented below it. A number of tasks that is not shown is {LATER}."


@dataclass(frozen=True, slots=True)
class ExplainedInput:
    """An input of a node in a dry run.

    Parameters
    ----------
    source
        The node whose rows it gets.
    partitioner, words
        How they are distributed: as the graph has it, and in words; these are empty where rows stay in their task.
    """

    source: int
    partitioner: str
    words: str


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """A node of the graph in a dry run.

    Parameters
    ----------
    id, kind, name, description
        As in the stream graph.
    label
        What people call it, empty if it is not worth a word.
    parallelism
        What is known of it now, None for what is decided later.
    reason
        Why that number, or when it is decided.
    inputs
        Its inputs.
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
class Explanation:
    """What `Environment.explain` returns; `str` makes a text of it, `as_dict` plain values."""

    nodes: tuple[ExplainedNode, ...]
    decisions: DecisionLog
    planned: tuple[Choice, ...] = ()
    spark_plan: str | None = None
    """Spark's own plans, of queries that are handed to Spark whole; there are no nodes then."""

    @classmethod
    def of_whole(cls, whole: WholeQuery, queries: Sequence[DataFrame]) -> Explanation:
        """Tell why queries are handed to Spark whole, and how Spark plans them."""
        decisions = DecisionLog()
        decisions.record(whole.decision("the query"))
        return cls((), decisions, spark_plan="\n".join(map(executed_plan_text, queries)))

    @classmethod
    def of(
        cls, bridge: Bridge, config: Configuration, plan: JobPlan, strategies: Sequence[StreamGraphOptimizationStrategy]
    ) -> Explanation:
        """Ask the sources of a plan, and decide what can be decided without running anything."""
        decisions = DecisionLog()
        optimizer = StreamGraphOptimizer(strategies, config, resources_of(bridge, config), decisions)
        manager = AdaptiveGraphManager(plan.graph, optimizer.initialize)
        cores, nothing = jobs.cluster_cores(bridge), NothingWritten()
        decider = VertexDecider(plan, config, cores, plan, nothing, nothing, decisions)
        known: dict[int, tuple[int | None, str]] = {}
        with jobs.SparkThreads(1, "penstock-explain", bridge) as askers:
            for vertex in manager.job_graph:
                inferred = {
                    node_id: decider.ask(vertex, node_id, askers).result()
                    for node_id in vertex.node_ids
                    if node_id in plan.sources
                }
                decided = decider.decide(vertex, inferred)
                known |= dict.fromkeys(vertex.node_ids, (decided.parallelism, decided.reason))
        names = column_names(plan.graph)
        nodes = tuple(
            ExplainedNode(
                node.id,
                node.kind.value,
                node.name,
                node_name(plan.graph, node, names),
                mask(node.description),
                *known.get(
                    node.id,
                    (node.parallelism, "given by the user" if node.parallelism is not None else LATER),
                ),
                tuple(
                    ExplainedInput(
                        edge.source_id, readable(str(edge.partitioner), names), edge_words(edge.partitioner, names)
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
                    "inputs": [{"source": one.source, "partitioner": one.partitioner} for one in node.inputs],
                }
                for node in self.nodes
            ],
            "decisions": [decision.as_dict() for decision in self.decisions],
            "notes": [
                {
                    "subject": str(one.subject),
                    "chosen": one.chosen,
                    "reason": one.reason,
                    "sentence": one.words.sentence,
                }
                for one in self.planned
            ],
            "spark_plan": self.spark_plan,
        }

    def _repr_html_(self) -> str:
        return html_of_text(str(self))

    def __str__(self) -> str:
        if self.spark_plan is not None:
            told = [decision.text for decision in together(self.decisions.told)]
            return "\n".join([*told, "Spark's plan", *(f"  {line}" for line in self.spark_plan.splitlines())])
        lines = [_TITLE, *self._tree()]
        first = [decision for decision in self.decisions if decision.kind is DecisionKind.BUILD_SIDE_FIRST]
        if first:
            lines += ["Read first", *(f"- {one}" for one in first)]
        if self.planned:
            lines += ["Planned", *(f"- {one}" for one in self.planned)]
        return "\n".join(lines)

    def _tree(self) -> Iterator[str]:
        """Return a line for each step, from the results down to the sources; what is read twice stands once."""
        by_id = {node.id: node for node in self.nodes}
        read = {one.source for node in self.nodes for one in node.inputs}
        seen: set[int] = set()
        todo = [(by_id[node.id], 1, "") for node in reversed(self.nodes) if node.id not in read]
        while todo:
            node, depth, how = todo.pop(0)
            again = node.id in seen
            seen.add(node.id)
            below = depth
            if node.label:
                below += 1
                yield (
                    "  " * depth
                    + (f"{how}: " if how else "")
                    + (f"{node.label} (see above)" if again else f"{node.label}{self._tasks(node)}")
                )
                how = ""
            if not again:
                todo[:0] = [(by_id[one.source], below, one.words or how) for one in node.inputs]

    def _tasks(self, node: ExplainedNode) -> str:
        if node.parallelism is None:
            return "" if node.reason == LATER else f", {node.reason}"
        return f", {show_count(node.parallelism, 'task')}: {node.reason}"
