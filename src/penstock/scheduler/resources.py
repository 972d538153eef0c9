"""The resources of a cluster: limits for broadcasts and hash tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.options import BROADCAST_THRESHOLD, DATA_VOLUME_PER_TASK
from penstock.execution.context import BroadcastBounds
from penstock.optimizer import Resources
from penstock.planner.planner import planned_broadcast_threshold
from penstock.scheduler.deciders.settings import ParallelismSettings
from penstock.spark import jobs
from penstock.spark.session import broadcast_threshold

if TYPE_CHECKING:
    from penstock.config import Configuration
    from penstock.spark.jvm import Bridge

_EXECUTION_SHARE = 0.6
"""The part of a heap that Spark uses for execution and storage, by default."""


_BROADCAST_OVERRUN = 10
"""A broadcast is stopped beyond this multiple of the threshold; below, finishing it is cheaper than a shuffle."""


def resources_of(bridge: Bridge, config: Configuration) -> Resources:
    """Return the resource limits of strategies.

    A broadcast table may take an eighth of Spark's share of the smallest heap: there may be several at a time, and the
    driver holds each twice while building it. A hash table within a task may take a quarter of the task's share.
    """
    driver, executor = jobs.heap_bytes(bridge)
    tasks = max(jobs.cluster_cores(bridge) // jobs.executor_count(bridge), 1)
    option_value = config.maybe_integer(BROADCAST_THRESHOLD)
    spark_default = broadcast_threshold(bridge, at_run_time=True)
    threshold, option = spark_default if option_value is None else (option_value, BROADCAST_THRESHOLD.key)
    return Resources(
        broadcast_threshold=threshold,
        broadcast_memory=int(min(driver, executor) * _EXECUTION_SHARE / 8),
        task_memory=int(executor * _EXECUTION_SHARE / tasks / 4),
        volume_per_task=config.integer(DATA_VOLUME_PER_TASK),
        cores=jobs.cluster_cores(bridge),
        broadcast_option=option,
    )


def broadcast_bounds(bridge: Bridge, config: Configuration, resources: Resources) -> BroadcastBounds:
    """Return when to stop a broadcast that Spark's estimates chose, and how its rows are shuffled instead."""
    planned, _ = planned_broadcast_threshold(bridge, config)
    settings = ParallelismSettings.of(config, resources.cores)
    return BroadcastBounds(
        limit=max(planned, min(_BROADCAST_OVERRUN * planned, resources.broadcast_memory)),
        memory=resources.broadcast_memory,
        volume_per_task=resources.volume_per_task,
        most_subpartitions=max(settings.bounds.maximum, settings.fixed or 1),
    )
