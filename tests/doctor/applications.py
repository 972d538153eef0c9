"""Records of applications for tests of checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.doctor.records import Application, PlanNode, Query, Stage, TaskRow, Tasks

MIB = 1 << 20
ACTION = "collect at /jobs/orders.py:12"
LINE = "collect at orders.py:12"


def task(start: float, end: float, **figures: float) -> TaskRow:
    """Return a task that ran from `start` to `end`; its run time in the executor is 10 ms less, unless it is passed."""
    return TaskRow(**{"launch": start, "finish": end, "run": max(end - start - 0.01, 0.0), **figures})


def node(name: str, *children: PlanNode, text: str = "", location: str = "", **metrics: int) -> PlanNode:
    """Return a node whose metrics have some accumulator ids; underscores in their names stand for spaces."""
    ids = {metric.replace("_", " "): number for metric, number in metrics.items()}
    metadata = {"Location": location} if location else {}
    return PlanNode(name, text or name, list(children), ids, metadata)


def stage(
    number: int, tasks: Sequence[TaskRow], nodes: Sequence[PlanNode] = (), query: int | None = 0, **fields: Any
) -> Stage:
    return Stage(
        number,
        fields.pop("attempt", 0),
        ACTION,
        len(tasks),
        query=query,
        tasks=Tasks(tasks),
        nodes=list(nodes),
        **fields,
    )


def application(
    stages: Sequence[Stage],
    queries: Sequence[Query] = (),
    values: dict[int, float] | None = None,
    cores: int = 4,
    settings: dict[str, str] | None = None,
    last_event: float = 0.0,
) -> Application:
    ends = [float(part.tasks.column("finish").max()) for part in stages]
    return Application(
        name="orders",
        ended=max(ends, default=0.0),
        last_event=last_event,
        cores=[(0.0, cores)],
        settings=settings or {},
        stages=list(stages),
        queries={query.id: query for query in queries} or {0: Query(0, ACTION, 0.0, max(ends, default=0.0))},
        values={0: values or {}},
    )


def query(number: int, plan: PlanNode | None, **fields: Any) -> Query:
    return Query(number, ACTION, plan=plan, **fields)
