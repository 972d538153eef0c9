"""A cluster as a model: how long measured stages take on other cores, over a network, with more data.

Work and bytes grow with the data. Stages that run at once share the cores alike, as fluids do. What is not modelled:
broadcasts, stragglers, skew, disks, and plans that would be others at another size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

BYTES_OF_TASK = 64 << 20
"""What a task reads at least, where there is more: Spark's advisory size of a partition after a shuffle."""


@dataclass(frozen=True)
class Cluster:
    """Executors, and what they cost.

    Parameters
    ----------
    executors, cores
        How many there are, and the cores of each.
    bandwidth
        Bytes that an executor receives in a second; 10 Gbit/s less a fifth for protocols.
    launch
        Seconds of the driver for each task, one after the other: Spark starts about a thousand in a second.
    start
        Seconds from one stage to the next: planning, scheduling, the first heartbeat of a task.
    fetch
        Core seconds for each block of a shuffle: one of a map task for a reduce task.
    """

    executors: int
    cores: int = 4
    bandwidth: float = 1e9
    launch: float = 0.001
    start: float = 0.1
    fetch: float = 0.00005

    @property
    def all_cores(self) -> int:
        """The cores of all executors."""
        return self.executors * self.cores


@dataclass(frozen=True)
class Stage:
    """What a stage did where it was measured.

    Parameters
    ----------
    begun, ended
        Seconds since the query began. Stages that had ended before are those that it waits for.
    work
        Core seconds of its tasks.
    read, fetched
        Bytes of files, and of earlier stages.
    tasks
        How many there were.
    """

    begun: float
    ended: float
    work: float
    read: int
    fetched: int
    tasks: int


def tasks_of(stage: Stage, growth: float) -> int:
    """Return how many tasks a stage has with so many times the data."""
    return max(stage.tasks, math.ceil(growth * (stage.read + stage.fetched) / BYTES_OF_TASK))


def with_bytes_read(stages: list[Stage], read: int) -> list[Stage]:
    """Return stages that have read so many bytes of files in all: those that Spark does not count, DuckDB has read.

    They are dealt out by work.

    Examples
    --------
    >>> one, other = with_bytes_read([Stage(0, 1, 2.0, 0, 0, 4), Stage(1, 2, 1.0, 0, 10, 1)], 500)
    >>> one.read, other.read
    (500, 0)
    """
    silent = [n for n, one in enumerate(stages) if not one.read and not one.fetched]
    work = sum(stages[n].work for n in silent)
    left = max(read - sum(one.read for one in stages), 0)
    return [
        replace(one, read=round(left * one.work / work)) if n in silent and work else one
        for n, one in enumerate(stages)
    ]


def waits_for(stages: list[Stage]) -> list[set[int]]:
    """Return which stages each waits for: those that had ended when it began."""
    return [{n for n, other in enumerate(stages) if other.ended <= one.begun} for one in stages]


def seconds(stages: list[Stage], cluster: Cluster, growth: float) -> float:
    """Return how long the stages of a query take on a cluster with so many times the data.

    Examples
    --------
    Four core seconds, in one task, on four cores; a stage that waits for it moves 4 GB over two executors' networks.

    >>> calm = Cluster(2, 2, launch=0, start=0, fetch=0)
    >>> seconds([Stage(0, 4, 4.0, 0, 0, 1)], calm, 1)
    4.0
    >>> seconds([Stage(0, 4, 4.0, 0, 0, 1), Stage(4, 5, 0.0, 0, 4_000_000_000, 4)], calm, 1)
    5.0
    """
    needs = waits_for(stages)
    tasks = [tasks_of(one, growth) for one in stages]
    # What is left of each: core seconds, bytes to receive, and seconds that neither cores nor networks shorten.
    work = [growth * one.work for one in stages]
    moved = [growth * one.fetched * (cluster.executors - 1) / cluster.executors for one in stages]
    fixed = [cluster.start + cluster.launch * count for count in tasks]
    for place, one in enumerate(stages):
        if one.fetched:
            before = max((tasks[n] for n in needs[place]), default=1)
            work[place] += cluster.fetch * tasks[place] * before
    now, ended = 0.0, set[int]()
    while len(ended) < len(stages):
        running = [n for n in range(len(stages)) if n not in ended and needs[n] <= ended]
        share = cluster.all_cores / len(running)
        network = cluster.executors * cluster.bandwidth / len(running)
        speed = {n: min(share, tasks[n]) for n in running}
        left = {n: fixed[n] + max(work[n] / speed[n], moved[n] / network) for n in running}
        step = min(left.values())
        now += step
        for n in running:
            if left[n] <= step:
                ended.add(n)
                continue
            done = max(step - fixed[n], 0.0)
            fixed[n] = max(fixed[n] - step, 0.0)
            work[n] = max(work[n] - done * speed[n], 0.0)
            moved[n] = max(moved[n] - done * network, 0.0)
    return now
