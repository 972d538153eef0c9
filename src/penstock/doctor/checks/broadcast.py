"""Joins whose small side was shuffled instead of broadcast, and broadcasts that are too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes
from penstock.config.option import parse_size
from penstock.config.options import BROADCAST_THRESHOLD
from penstock.doctor.finding import Finding, Kind
from penstock.errors import PenstockError
from penstock.graph.join_types import JoinType, Side

if TYPE_CHECKING:
    from penstock.doctor.records import Application, PlanNode, Query
    from penstock.doctor.timeline import Timeline

_SPARK_SETTING = "spark.sql.autoBroadcastJoinThreshold"
_DEFAULT_THRESHOLD = 10 << 20
_LARGE_BROADCAST = 64 << 20
"""Bytes in memory from which a broadcast is large: several times Spark's limit, which is for compressed rows."""
_BYTES_PER_SECOND = 100e6
"""Bytes of rows in memory that a core serializes, compresses and later reads again per second."""
_SHUFFLED_JOINS = ("SortMergeJoin", "ShuffledHashJoin")
_PASSED = ("Sort", "Project", "Filter", "ReusedExchange")
"""Operators between a join and the exchange of its side."""


def check(application: Application, _: Timeline) -> Iterator[Finding]:
    """Yield a finding per shuffled join with a small side, and per large broadcast."""
    for query in application.queries.values():
        for node in query.nodes:
            finding = None
            if node.name.startswith(_SHUFFLED_JOINS):
                finding = _missed(application, query, node)
            elif node.name == "BroadcastExchange":
                finding = _too_large(application, query, node)
            if finding is not None:
                yield finding


def _setting(application: Application, query: Query) -> str:
    """Return the setting of a query, which overrides that of the application; empty if there is none."""
    return query.settings.get(_SPARK_SETTING, application.settings.get(_SPARK_SETTING, ""))


def session_threshold(application: Application, query: Query) -> int:
    """Return the broadcast threshold of a query in bytes, -1 if broadcasts are turned off."""
    text = _setting(application, query)
    try:
        return parse_size(text) if text.strip() not in {"", "-1"} else (-1 if text else _DEFAULT_THRESHOLD)
    except PenstockError:
        return _DEFAULT_THRESHOLD


def _missed(application: Application, query: Query, join: PlanNode) -> Finding | None:
    """Report a join that shuffled a large side although the other side is small enough for a broadcast.

    Lost seconds: the measured times to write, fetch and sort the rows of the large side, and the time to serialize its
    bytes at `_BYTES_PER_SECOND`, divided by the tasks that ran at a time in the slowest stage with these rows.
    """
    sides = [_side(child) for child in join.children[:2]]
    if len(sides) != 2 or not all(sides):
        return None
    sizes = [application.value(side[-1], "shuffle bytes written") for side in sides]
    small, large = (0, 1) if sizes[0] <= sizes[1] else (1, 0)
    threshold = session_threshold(application, query)
    limit = threshold if threshold >= 0 else _DEFAULT_THRESHOLD
    join_type = next((kind for kind in JoinType if f" {kind}" in join.text), JoinType.INNER)
    if not sizes[small] < limit or not sizes[large] or not join_type.can_build(Side.of_input(small + 1)):
        return None
    exchange, memory = sides[large][-1], application.value(sides[large][-1], "data size")
    seconds = memory / _BYTES_PER_SECOND
    seconds += application.value(exchange, "shuffle write time") / 1e9
    seconds += application.value(exchange, "fetch wait time") / 1e3
    seconds += sum(application.value(node, "sort time") for node in sides[large]) / 1e3
    concurrency = max((stage.tasks.concurrency for stage in application.stages_of([exchange])), default=1.0)
    problem = (
        f"{join.name} shuffled {show_bytes(memory)} of rows ({show_bytes(sizes[large])} compressed) of one side, "
        f"although the other side has only {show_bytes(sizes[small])} compressed."
    )
    if threshold < 0:
        decision = (
            f"With {_SPARK_SETTING} = {_setting(application, query)}, Penstock broadcasts nothing either. "
            f"With the default of {show_bytes(limit)}, it would have broadcast this side and not shuffled the other."
        )
        remedy = f"Remove {_SPARK_SETTING}, or use the hint broadcast() for the small side."
    else:
        decision = (
            f"Penstock would have measured the small side first and broadcast it, as it is below {show_bytes(limit)} "
            f"({BROADCAST_THRESHOLD.key})."
        )
        remedy = "Use the hint broadcast() for the small side, or keep adaptive execution on and collect statistics."
    figures = {"small_side_bytes": sizes[small], "shuffled_bytes": sizes[large], "limit_bytes": limit}
    line = application.where(query.id)
    return Finding(
        Kind.BROADCAST,
        seconds / concurrency,
        line,
        join.plain_text[:120],
        problem,
        decision,
        remedy,
        figures,
        queries=(query.id,),
    )


def _side(node: PlanNode) -> list[PlanNode]:
    """Return the nodes from a join side to its exchange, the last; empty if it is not shuffled just for the join.

    The exchange of a repartition() of the user stays also with a broadcast.
    """
    nodes = [node]
    while not nodes[-1].is_exchange or nodes[-1].name == "ReusedExchange":
        current = nodes[-1]
        if len(current.children) != 1 or not (current.is_structural or current.name in _PASSED):
            return []
        nodes.append(current.children[0])
    return nodes if "ENSURE_REQUIREMENTS" in nodes[-1].text else []


def _too_large(application: Application, query: Query, exchange: PlanNode) -> Finding | None:
    """Report a broadcast of many bytes.

    Lost seconds: the times in the driver to build and to send the hash table. No task runs the query meanwhile.
    """
    size, rows = application.value(exchange, "data size"), application.value(exchange, "number of output rows")
    if size < _LARGE_BROADCAST:
        return None
    build = application.value(exchange, "time to build") / 1e3
    send = application.value(exchange, "time to broadcast") / 1e3
    collect = application.value(exchange, "time to collect") / 1e3
    problem = (
        f"A broadcast table has {show_bytes(size)} in memory and {rows:,.0f} rows. The driver collected it in "
        f"{collect:.1f} s, built it in {build:.1f} s and sent it in {send:.1f} s."
    )
    limit = max(session_threshold(application, query), _DEFAULT_THRESHOLD)
    return Finding(
        Kind.BROADCAST,
        build + send,
        application.where(query.id),
        f"broadcast of {exchange.plain_text[:100]}",
        problem,
        f"Without a hint, Penstock broadcasts a side only if it is measured below {show_bytes(limit)} compressed, and "
        "its hash table fits into the memory for broadcasts. A hint in the query takes precedence.",
        "Remove the broadcast hint, or lower the threshold, so that the join is shuffled by all tasks.",
        {
            "broadcast_bytes": size,
            "rows": rows,
            "build_seconds": build,
            "send_seconds": send,
            "collect_seconds": collect,
        },
        queries=(query.id,),
    )
