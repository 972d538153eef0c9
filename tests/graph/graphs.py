"""Small graphs in a short notation."""

from penstock.graph import OperatorKind, StreamEdge, StreamGraph, StreamNode
from penstock.graph.partitioner import BROADCAST, FORWARD, GLOBAL, REBALANCE, HashPartitioner

PARTITIONERS = {"->": FORWARD, "#>": HashPartitioner(("k",)), "*>": BROADCAST, "=>": REBALANCE, "1>": GLOBAL}


def graph(text: str, parallelism: dict[int, int] | None = None) -> StreamGraph:
    """Return the graph of lines such as ``1 -> 2`` and ``2 #> 3``; nodes are made as they come up."""
    nodes, edges = {}, []
    for line in filter(None, map(str.strip, text.splitlines())):
        source, arrow, target = line.split()
        for end in (int(source), int(target)):
            nodes.setdefault(end, StreamNode(end, OperatorKind.CALC, f"n{end}", parallelism=(parallelism or {}).get(end, -1)))
        number = 1 + sum(edge.target_id == int(target) for edge in edges)
        edges.append(StreamEdge(f"{source}-{target}", int(source), int(target), PARTITIONERS[arrow], number))
    return StreamGraph(nodes.values(), edges)
