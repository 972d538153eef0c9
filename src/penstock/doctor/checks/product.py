"""Cartesian products and nested loop joins, which compare all pairs of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.doctor.finding import Finding, Kind

if TYPE_CHECKING:
    from penstock.doctor.records import Application, PlanNode
    from penstock.doctor.timeline import Timeline

_MIN_PAIRS_PER_ROW = 100
"""With fewer pairs than this per row of both sides, a product costs no more than other joins."""
_PAIRS_PER_SECOND = 20e6
"""Pairs that a core compares per second, at the upper end, with generated code."""


def check(application: Application, _: Timeline) -> Iterator[Finding]:
    """Yield a finding per join that compared all pairs of rows.

    Lost seconds: the pairs, at `_PAIRS_PER_SECOND`, divided by the tasks that ran at a time; not more than the duration
    of the stages with the join. A join on equal keys would read each row once.
    """
    for query in application.queries.values():
        for join in query.nodes:
            if not join.name.startswith(("CartesianProduct", "BroadcastNestedLoopJoin")):
                continue
            stages = application.stages_of([join]) or application.stages_of(join.children)
            rows = [output_rows(application, child) for child in join.children[:2]]
            if len(rows) != 2 or not stages or None in rows:
                continue
            left, right = (float(count or 0) for count in rows)
            # A Cartesian product reads each partition once per partition of the other side, in a task per combination.
            repetitions = sum(stage.task_count for stage in stages) if join.name.startswith("Cartesian") else 1
            pairs = left * right / max(repetitions, 1)
            if pairs < _MIN_PAIRS_PER_ROW * (left + right):
                continue
            slowest = max(stages, key=lambda stage: stage.seconds)
            lost = min(pairs / _PAIRS_PER_SECOND / slowest.tasks.concurrency, slowest.seconds)
            output = application.value(join, "number of output rows")
            problem = f"{join.name} compared {pairs:,.0f} pairs of rows, and returned {output:,.0f} rows."
            yield Finding(
                Kind.PRODUCT,
                lost,
                application.where(query.id),
                join.plain_text[:160],
                problem,
                "Penstock runs such a join as Spark plans it: without an equality, no exchange or broadcast avoids it.",
                "Add an equality to the join condition. For ranges, join on a bucket of the value and then filter.",
                {"left_rows": left, "right_rows": right, "pairs": pairs, "output_rows": output},
                queries=(query.id,),
            )


def output_rows(application: Application, node: PlanNode) -> float | None:
    """Return the number of rows that a node returns, from the first node below that reports it; None if unknown."""
    current = node
    while True:
        for name in ("number of output rows", "shuffle records written"):
            if application.has_value(current, name):
                return application.value(current, name)
        if len(current.children) != 1:
            return None
        current = current.children[0]
