"""Measure creating a graph of 10 000 vertices with 1 000 subpartitions each, and deciding its parallelism, without Spark."""

import argparse
import platform
import statistics
import time
from pathlib import Path

import numpy as np

from penstock.graph import AdaptiveGraphManager, AggregateOperator, StreamEdge, StreamGraph, StreamNode
from penstock.graph.partitioner import HashPartitioner
from penstock.sizing.parallelism import Bounds, decide_vertex
from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent


def chains(count: int) -> StreamGraph:
    """Return a graph of a hundred chains of vertices with hash exchanges between them."""
    nodes = [StreamNode(i, AggregateOperator(None), f"n{i}") for i in range(count)]
    edges = [StreamEdge(str(i), i - 100, i, HashPartitioner(("k",))) for i in range(100, count)]
    return StreamGraph(nodes, edges)


def run(count: int, subpartitions: int) -> tuple[float, float]:
    """Return the seconds for creating the graph and for the decisions."""
    random = np.random.default_rng(1)
    # Sizes below, near and far beyond the bound.
    means = random.choice([10_000, 1_000_000, 8_000_000], count)
    sizes = [random.integers(0, 2 * mean, subpartitions) for mean in means]
    start = time.perf_counter()
    manager = AdaptiveGraphManager(chains(count))
    queue = [vertex.id for vertex in manager.job_graph]
    while queue:
        manager.finish(queue.pop())
        queue += [vertex.id for vertex in manager.grow()]
    assert manager.pending_operators == 0
    created = time.perf_counter()
    bounds = Bounds(1, 128, 16 << 20)
    for size in sizes:
        decide_vertex([size], bounds)
    return created - start, time.perf_counter() - created


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vertices", type=int, default=10_000)
    parser.add_argument("--subpartitions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    times = [run(arguments.vertices, arguments.subpartitions) for _ in range(arguments.rounds)]
    graph, decisions = (statistics.median(column) for column in zip(*times, strict=True))
    text = (
        f"{arguments.vertices:,} vertices with {arguments.subpartitions:,} subpartitions each, median of {arguments.rounds} "
        f"({DATE_AND_COMMIT}, {versions()}, {platform.machine()}):\n\n"
        f"| step | seconds |\n|---|--:|\n| creating the vertices | {graph:.2f} |\n| deciding the parallelism | {decisions:.2f} |\n"
        f"| both | {graph + decisions:.2f} |\n"
    )
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "decide.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
