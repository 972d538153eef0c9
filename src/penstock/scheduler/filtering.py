"""Fetches the keys of finished join sides, once each, and makes filters of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from penstock.config.options import DYNAMIC_FILTERING_EXACT_KEYS
from penstock.connectors.base import KeyFilter
from penstock.optimizer.dynamic_filtering import FILTERS
from penstock.optimizer.graphs import sides
from penstock.optimizer.joins import other
from penstock.spark import exchange, filters, fragment
from penstock.spark.catalyst import expression_sql
from penstock.spark.exchange import BroadcastResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.config import Configuration
    from penstock.graph import StreamGraph, StreamNode
    from penstock.optimizer.dynamic_filtering import DynamicFilterRef
    from penstock.planner.plan import JobPlan
    from penstock.scheduler.runner import Result
    from penstock.spark.filters import KeySet
    from penstock.spark.jvm import Bridge

_READERS = 2
"""Tasks that read the keys, for each core there would be too many of next to nothing."""


class KeyFilters:
    """The filters of one job.

    Parameters
    ----------
    bridge
        The session.
    plan
        The job's plan.
    config
        The options.
    graph
        Returns the stream graph as it is now.
    result_of
        Returns what a finished node's vertex has written.
    """

    def __init__(
        self,
        bridge: Bridge,
        plan: JobPlan,
        config: Configuration,
        graph: Callable[[], StreamGraph],
        result_of: Callable[[int], Result | None],
    ) -> None:
        self._bridge = bridge
        self._plan = plan
        self._exact = config.integer(DYNAMIC_FILTERING_EXACT_KEYS)
        self._graph = graph
        self._result_of = result_of
        self._sets: dict[tuple[int, str], KeySet] = {}
        self._locks: dict[tuple[int, str], threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, node: StreamNode) -> list[tuple[KeySet, tuple[Any, ...]]]:
        """Return the key sets that filter a node's rows, each with the keys in terms of its output.

        They must have been fetched before.
        """
        found = []
        for ref in node.properties.get(FILTERS, ()):
            keys = self._sets.get((ref.join_id, self._giver(ref)))
            places = self._plan.nodes[ref.join_id].ways[ref.path]
            place = next((place for place in places if place.node_id == node.id), None)
            if keys is not None and place is not None:
                found.append((keys, place.keys))
        return found

    def fetch(self, session: Any, node: StreamNode) -> None:
        """Fetch the key sets of a node by queries on this thread; of several threads one does it."""
        for ref in node.properties.get(FILTERS, ()):
            name = (ref.join_id, self._giver(ref))
            with self._lock:
                lock = self._locks.setdefault(name, threading.Lock())
            with lock:
                if name not in self._sets:
                    keys = self._collect(session, *name)
                    if keys is not None:
                        self._sets[name] = keys

    def info(self, node: StreamNode) -> KeyFilter | None:
        """Return what a source may know of its filters."""
        columns: dict[str, None] = {}
        predicates = []
        for keys, expressions in self.of(node):
            columns.update(dict.fromkeys(str(key.name()) for key in expressions))
            if keys.is_empty:
                predicates.append("false")
                continue
            parts = filters.conditions(self._bridge, keys, expressions)
            predicates += [expression_sql(part) for part in parts[: len(parts) - (keys.bloom is not None)]]
        return KeyFilter(tuple(columns), " AND ".join(predicates)) if columns else None

    def _giver(self, ref: DynamicFilterRef) -> str:
        return other(self._graph().node(ref.join_id).properties["filters"][ref.path].side)

    def _collect(self, session: Any, join_id: int, side: str) -> KeySet | None:
        edge = sides(self._graph(), self._graph().node(join_id))[side]
        result = self._result_of(edge.source_id)
        if result is None:
            return None
        plan = self._plan.edges[edge.id]
        output = plan.output if plan.output is not None else plan.child.handle.output()
        if isinstance(result, BroadcastResult):
            rdd = result.plan.execute()
        else:
            width = result.subpartitions
            tasks = min(_READERS, width)
            rdd = exchange.read(self._bridge, result, [(i * width // tasks, (i + 1) * width // tasks) for i in range(tasks)])
        leaf = fragment.rdd_leaf(self._bridge, self._bridge.session, output, rdd)
        keys = self._plan.nodes[join_id].join_keys[side]
        return filters.collect_keys(self._bridge, session, leaf, keys, result.rows, self._exact)
