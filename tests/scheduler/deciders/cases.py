"""Builds jobs from text graphs, and decides their vertices without Spark."""

from __future__ import annotations

from typing import Any

from penstock.config import Configuration
from penstock.decisions.log import DecisionLog
from penstock.graph import AdaptiveGraphManager
from penstock.planner.draft import build_job_plan
from penstock.scheduler.deciders.vertex import VertexDecider
from tests.planner.drafts import draft
from tests.scheduler.results import Results

CORES = 4
VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"


class Deciding:
    """A job in which some vertices have finished.

    Parameters
    ----------
    text, operators, facts
        The graph, see `tests.planner.drafts.draft`.
    results
        The results of finished nodes.
    config
        The options; by default, a task reads 100 bytes.
    """

    def __init__(
        self, text: str, operators: Any = None, *, results: Any = None, config: Any = None, **facts: Any
    ) -> None:
        self.plan = build_job_plan(draft(text, operators, **facts), "x")
        self.manager = AdaptiveGraphManager(self.plan.graph)
        self.log = DecisionLog()
        self.results = Results(results or {})
        options = Configuration.load({VOLUME: "100 b", **(config or {})})
        self._decider = VertexDecider(self.plan, options, CORES, self.manager, self.results, self.results, self.log)

    def decide(self, tail: Any, inferred: Any = None) -> Any:
        """Decide the vertex that ends with a node; the vertices before it finish first."""
        while not (vertices := [vertex for vertex in self.manager.job_graph if vertex.tail_id == tail]):
            for vertex in [vertex for vertex in self.manager.job_graph if vertex.tail_id in self.results]:
                if vertex.id not in self.manager._finished_vertices:
                    self.manager.finish(vertex.id)
                    self.manager.grow()
        return self._decider.decide(vertices[0], inferred or {})
