"""Model of a cluster: how long measured stages would take with other cores, a network and more data.

Work and bytes grow with the data. Concurrent stages share cores and network equally, like fluids. Not modelled:
broadcasts, stragglers, skew, disks, and plans that change with the size of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

TASK_BYTES = 64 << 20
"""Bytes per task of a stage with many tasks: Spark's advisory size of a partition after a shuffle."""


@dataclass(frozen=True)
class Cluster:
    """Executors and their costs.

    Parameters
    ----------
    cores
        Cores of each executor.
    bandwidth
        Bytes per second that an executor receives; 10 Gbit/s less a fifth for protocols.
    launch
        Seconds of the driver per task; the driver starts tasks sequentially: Spark starts about a thousand tasks per second.
    start
        Seconds between dependent stages: planning, scheduling, the first heartbeat of a task.
    fetch
        Core seconds per shuffle block; each map task writes a block for each reduce task.
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
    """Metrics of a measured stage.

    Parameters
    ----------
    start, end
        Seconds since the start of the query. A stage waits for the stages that ended before it started.
    work
        Core seconds of its tasks.
    read, fetched
        Bytes read from files, and shuffle bytes read from earlier stages.
    """

    start: float
    end: float
    work: float
    read: int
    fetched: int
    tasks: int


def task_count(stage: Stage, growth: float) -> int:
    """Return the number of tasks of a stage with `growth` times the data."""
    return max(stage.tasks, math.ceil(growth * (stage.read + stage.fetched) / TASK_BYTES))


def with_bytes_read(stages: list[Stage], read: int) -> list[Stage]:
    """Return the stages with `read` bytes of files in all.

    Spark does not count the bytes that DuckDB reads. The missing bytes are divided by work among the stages without any bytes.

    Examples
    --------
    >>> scan, join = with_bytes_read([Stage(0, 1, 2.0, 0, 0, 4), Stage(1, 2, 1.0, 0, 10, 1)], 500)
    >>> scan.read, join.read
    (500, 0)
    """
    unmeasured = [n for n, stage in enumerate(stages) if not stage.read and not stage.fetched]
    work = sum(stages[n].work for n in unmeasured)
    missing = max(read - sum(stage.read for stage in stages), 0)
    return [
        replace(stage, read=round(missing * stage.work / work)) if n in unmeasured and work else stage
        for n, stage in enumerate(stages)
    ]


def dependencies(stages: list[Stage]) -> list[set[int]]:
    """Return for each stage the indexes of the stages that ended before it started."""
    return [{n for n, other in enumerate(stages) if other.end <= stage.start} for stage in stages]


def seconds(stages: list[Stage], cluster: Cluster, growth: float) -> float:
    """Return how long the stages of a query take on a cluster with `growth` times the data.

    Examples
    --------
    A task of four core seconds, on four cores; a stage that waits for it moves 4 GB over the networks of two executors.

    >>> cluster = Cluster(2, 2, launch=0, start=0, fetch=0)
    >>> seconds([Stage(0, 4, 4.0, 0, 0, 1)], cluster, 1)
    4.0
    >>> seconds([Stage(0, 4, 4.0, 0, 0, 1), Stage(4, 5, 0.0, 0, 4_000_000_000, 4)], cluster, 1)
    5.0
    """
    needs = dependencies(stages)
    tasks = [task_count(stage, growth) for stage in stages]
    # The remainder of each stage: core seconds, bytes to receive, and seconds that neither cores nor networks shorten.
    work = [growth * stage.work for stage in stages]
    moved = [growth * stage.fetched * (cluster.executors - 1) / cluster.executors for stage in stages]
    fixed = [cluster.start + cluster.launch * count for count in tasks]
    for n, stage in enumerate(stages):
        if stage.fetched:
            map_tasks = max((tasks[m] for m in needs[n]), default=1)
            work[n] += cluster.fetch * tasks[n] * map_tasks
    now, ended = 0.0, set[int]()
    while len(ended) < len(stages):
        running = [n for n in range(len(stages)) if n not in ended and needs[n] <= ended]
        share = cluster.all_cores / len(running)
        network = cluster.executors * cluster.bandwidth / len(running)
        speed = {n: min(share, tasks[n]) for n in running}
        remaining = {n: fixed[n] + max(work[n] / speed[n], moved[n] / network) for n in running}
        step = min(remaining.values())
        now += step
        for n in running:
            if remaining[n] <= step:
                ended.add(n)
                continue
            done = max(step - fixed[n], 0.0)
            fixed[n] = max(fixed[n] - step, 0.0)
            work[n] = max(work[n] - done * speed[n], 0.0)
            moved[n] = max(moved[n] - done * network, 0.0)
    return now
