"""Runs strategies on small graphs without Spark: what finished, and what became of the graph."""

import numpy as np

from penstock.config import Configuration
from penstock.decisions import DecisionLog
from penstock.graph import AdaptiveGraphManager, OperatorKind, StreamEdge, StreamGraph, StreamNode
from penstock.graph.partitioner import (
    BROADCAST,
    FORWARD,
    REBALANCE,
    RESCALE,
    ForwardForConsecutiveHashPartitioner,
    HashPartitioner,
)
from penstock.optimizer import OperatorsFinished, Resources, ResultInfo
from penstock.optimizer.optimizer import StreamGraphOptimizer

MIB = 1 << 20
HASH = HashPartitioner(("k",))
ARROWS = {
    "->": FORWARD, "#>": HASH, "*>": BROADCAST, "=>": REBALANCE, "/>": RESCALE,
    "~>": ForwardForConsecutiveHashPartitioner(HASH),
}  # fmt: skip
RESOURCES = Resources(10 * MIB, 400 * MIB, 100 * MIB, 16 * MIB, 16)


def result(*mib, rows=1000, memory=None, scanned=None, mappers=None):
    """Return a result of subpartitions of so many MiB."""
    sizes = np.array([int(one * MIB) for one in mib], dtype=np.int64)
    return ResultInfo(sizes, rows, int(sizes.sum()) if memory is None else memory, mappers, scanned or {})


def graph_of(text, facts):
    """Return the graph of lines such as ``1 #> 3``; nodes with a ``join_type`` among their facts are joins."""
    nodes, edges = {}, []
    for line in filter(None, map(str.strip, text.splitlines())):
        source, arrow, target = line.split()
        for end in (int(source), int(target)):
            own = dict(facts.get(end, {}))
            kind = own.pop("kind", OperatorKind.JOIN if "join_type" in own else OperatorKind.CALC)
            nodes.setdefault(end, StreamNode(end, kind, f"n{end}", parallelism=own.pop("parallelism", -1), properties=own))
        number = 1 + sum(edge.target_id == int(target) for edge in edges)
        edges.append(StreamEdge(f"{source}-{target}", int(source), int(target), ARROWS[arrow], number))
    return StreamGraph(nodes.values(), edges)


class Case:
    """A job on paper.

    Parameters
    ----------
    strategies
        The strategies, as classes or objects.
    text, facts
        The graph, see `graph_of`.
    config, resources
        What the strategies are given.
    """

    def __init__(self, strategies, text, facts, config=None, resources=RESOURCES):
        self.decisions = DecisionLog()
        made = [one() if isinstance(one, type) else one for one in strategies]
        self.optimizer = StreamGraphOptimizer(made, Configuration.load(config or {}), resources, self.decisions)
        self.manager = AdaptiveGraphManager(graph_of(text, facts), self.optimizer.initialize)

    def finish(self, node_id, info=None):
        """Let the vertex that ends with a node finish; return the names of the vertices made because of it."""
        (vertex,) = (v for v in self.manager.job_graph if v.tail_id == node_id)
        self.manager.finish(vertex.id)
        self.optimizer.on_operators_finished(OperatorsFinished(vertex.node_ids, {} if info is None else {node_id: info}))
        return [made.name for made in self.manager.grow()]

    @property
    def edges(self):
        """The graph as lines, changed edges with their partitioner."""
        signs = {partitioner: sign for sign, partitioner in ARROWS.items()}
        return {
            f"{e.source_id} {signs[e.partitioner]} {e.target_id}" + ("" if e.intra_input_correlated else " cut")
            for e in self.manager.graph.edges
        }

    @property
    def vertices(self):
        return {vertex.name for vertex in self.manager.job_graph}

    def chosen(self, kind):
        return [str(d.chosen) for d in self.decisions if d.kind.value == kind]
