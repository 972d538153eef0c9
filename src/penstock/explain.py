"""A dry run: the stream graph, what sources answer, and what will be decided once data is measured."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.config.options import WHOLE_QUERY_THRESHOLD
from penstock.decisions import DecisionKind, DecisionLog
from penstock.execution.results import NothingWritten
from penstock.graph import AdaptiveGraphManager
from penstock.graph.naming import column_names, readable
from penstock.optimizer.optimizer import StreamGraphOptimizer
from penstock.scheduler.deciders.vertex import VertexDecider
from penstock.scheduler.resources import resources_of
from penstock.spark import jobs
from penstock.spark.dataframes import executed_plan_text
from penstock.tables import html_of_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from penstock.config import Configuration
    from penstock.decisions import Choice
    from penstock.optimizer import StreamGraphOptimizationStrategy
    from penstock.planner.plan import JobPlan
    from penstock.planner.whole_query import WholeQuery
    from penstock.spark.jvm import Bridge

LATER = "decided when its inputs are measured"


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """A node of the graph in a dry run.

    Parameters
    ----------
    id, kind, name, description
        As in the stream graph.
    parallelism
        What is known of it now, None for what is decided later.
    reason
        Why that number, or when it is decided.
    inputs
        For every input: the node, and the partitioner in words.
    """

    id: int
    kind: str
    name: str
    description: str
    parallelism: int | None
    reason: str
    inputs: tuple[tuple[int, str], ...]


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
        with ThreadPoolExecutor(4) as askers:
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
                node.description,
                *known.get(
                    node.id,
                    (node.parallelism, "given by the user" if node.parallelism is not None else LATER),
                ),
                tuple(
                    (edge.source_id, readable(str(edge.partitioner), names)) for edge in plan.graph.in_edges(node.id)
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
                    "description": node.description,
                    "parallelism": node.parallelism,
                    "reason": node.reason,
                    "inputs": [{"source": source, "partitioner": partitioner} for source, partitioner in node.inputs],
                }
                for node in self.nodes
            ],
            "decisions": [decision.as_dict() for decision in self.decisions],
            "notes": [
                {"subject": str(one.subject), "chosen": one.chosen, "reason": one.reason} for one in self.planned
            ],
            "spark_plan": self.spark_plan,
        }

    def _repr_html_(self) -> str:
        return html_of_text(str(self))

    def __str__(self) -> str:
        if self.spark_plan is not None:
            told = [f"Handed to Spark whole: {decision.reason}" for decision in self.decisions]
            told.append(f"Change with {WHOLE_QUERY_THRESHOLD.key}")
            return "\n".join([*told, "Spark's plan", *(f"  {line}" for line in self.spark_plan.splitlines())])
        lines = ["Stream graph"]
        for node in self.nodes:
            number = "?" if node.parallelism is None else str(node.parallelism)
            sources = ", ".join(f"{source} {partitioner}" for source, partitioner in node.inputs)
            lines.append(f"  {node.id:>3} {node.name}  x{number}" + (f"  <- {sources}" if sources else ""))
            lines.append(f"      {node.reason}")
        first = [decision for decision in self.decisions if decision.kind is DecisionKind.BUILD_SIDE_FIRST]
        if first:
            lines.append("Measured first")
            lines += [f"  {one.subject}: the {one.chosen} side, as {one.reason}" for one in first]
        if self.planned:
            lines.append("Planned")
            lines += [f"  {one.subject}: {_told(one)} ({one.reason})" for one in self.planned]
        return "\n".join(lines)


def _told(choice: Choice) -> str:
    return f"broadcast of the {choice.chosen} side" if choice.kind is DecisionKind.BROADCAST else str(choice.chosen)
