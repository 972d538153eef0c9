"""Fetches the keys of finished join sides, once each, and makes filters of them."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from penstock.connectors.base import KeyFilter
from penstock.connectors.file_scan import FileScan
from penstock.connectors.jdbc.keys import key_conditions
from penstock.connectors.plain_scan import PlainScan
from penstock.decisions import DecisionKind, NodeRef
from penstock.errors import VerificationError, first_line
from penstock.graph import CalcOperator, JoinOperator
from penstock.optimizer.dynamic_filtering import JOIN, SIDE, SKIPS
from penstock.optimizer.graphs import equi_join, is_broadcast
from penstock.planner.plan import WriteKind
from penstock.sizing.packing import spread_by_count
from penstock.spark import catalyst, exchange, filters, fragment
from penstock.spark.exchange import BroadcastResult, StagedResult
from penstock.spark.jdbc import is_jdbc_relation
from penstock.spark.parquet import row_groups_left
from penstock.spark.verification import is_met, ruled_out

if TYPE_CHECKING:
    from penstock.decisions import Decision
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.context import JobContext
    from penstock.execution.results import ResultStore
    from penstock.graph import DynamicFilterRef, JoinInput, StreamNode
    from penstock.planner.plan import SourcePlan, SparkFilterPath
    from penstock.spark.expressions import Attributes, Expression
    from penstock.spark.files import FileListing
    from penstock.spark.filters import KeySet
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan

log = logging.getLogger("penstock.scheduler")

_Given = tuple["JoinInput", tuple[str, ...]]
"""The join input that gives keys, and which keys of it."""
_BY_STATISTICS = ", by their statistics"
_WORTH_READING = 0.7
"""Conditions are handed to parquet if at most this part of the row groups is left by them."""
_READERS = 2
"""Tasks that read the keys, for each core there would be too many of next to nothing."""


class KeyFilters:
    """The filters of one job.

    Parameters
    ----------
    context, results, broadcasts
        The job, what its vertices have written, and the relations made of it.
    """

    def __init__(self, context: JobContext, results: ResultStore, broadcasts: Broadcasts) -> None:
        self._context = context
        self._plan = context.plan
        self._results = results
        self._broadcasts = broadcasts
        self._problems: dict[_Given, str] = {}
        self._sets: dict[_Given, KeySet | None] = {}
        self._for_sources: dict[tuple[int, KeySet], list[Expression]] = {}
        self._locks: dict[_Given, threading.Lock] = {}
        self._lock = threading.Lock()

    def apply(self, node: StreamNode, plan: LogicalPlan) -> LogicalPlan:
        """Return a node's plan less the rows that its filters rule out; their keys must have been fetched.

        What a source cannot leave out by itself is looked up behind the user's own filters right above it.
        """
        conditions: list[Expression] = []
        for ref, keys, expressions in self._of(node, node):
            if keys.is_empty:
                return fragment.placeholder(plan.output)
            conditions += self._for_source(node, ref, keys, expressions)
            if self._cheap_above(node) is None:
                conditions.append(filters.might_contain(keys, expressions))
        for below in self._context.graph.in_edges(node.id):
            source = self._context.graph.node(below.source_id)
            if source.filters and self._cheap_above(source) == node.id:
                found = self._of(source, node)
                conditions += [filters.might_contain(keys, at) for _, keys, at in found if not keys.is_empty]
        return plan.filtered_by(conditions)

    def _cheap_above(self, node: StreamNode) -> int | None:
        """Return the projections and filters right above a source."""
        outgoing = self._context.graph.out_edges(node.id)
        if node.id not in self._plan.sources or len(outgoing) != 1 or not outgoing[0].is_forward:
            return None
        target = self._context.graph.node(outgoing[0].target_id)
        there = all(any(p.node_id == target.id for p in self._path(ref).targets) for ref in node.filters)
        is_cheap = isinstance(target.operator, CalcOperator) and target.operator.is_cheap
        return target.id if is_cheap and there else None

    def _path(self, ref: DynamicFilterRef) -> SparkFilterPath:
        return self._plan.nodes[ref.join_id].filter_paths[ref.path]

    def _of(self, node: StreamNode, at: StreamNode) -> list[tuple[DynamicFilterRef, KeySet, tuple[Expression, ...]]]:
        """Return a node's filters with their key sets, each with the keys in terms of another node's output."""
        found = []
        for ref in node.filters:
            path = self._path(ref)
            keys = self._sets.get(self._given_by(ref))
            target = next((target for target in path.targets if target.node_id == at.id), None)
            if keys is not None and target is not None:
                found.append((ref, keys, catalyst.rebound(path.keys, path.ids, target.operator, target.ids)))
        return found

    def _for_source(
        self, node: StreamNode, ref: DynamicFilterRef, keys: KeySet, expressions: tuple[Expression, ...]
    ) -> list[Expression]:
        """Return the conditions to hand to a source.

        Parquet gets those that leave out row groups by their statistics and no others: to find out what they
        might leave out besides, its reader decodes dictionaries, which can cost more than reading the column.
        """
        source = self._plan.sources.get(node.id)
        if source is None or not all(one.is_attribute for one in expressions):
            return []
        if (node.id, keys) not in self._for_sources:
            conditions, problem = self._worth_handing_over(source, keys, expressions)
            self._for_sources[node.id, keys] = conditions
            # Most tables lie in no order of their keys: that nothing is skipped is told where it was promised.
            if problem and (not problem.endswith(_BY_STATISTICS) or self._is_promised(node, ref)):
                self._tell(node, ref, "rows are filtered only after they were read", problem)
        return self._for_sources[node.id, keys]

    def _is_promised(self, node: StreamNode, ref: DynamicFilterRef) -> bool:
        """Whether a node is filtered because its source can skip data."""
        made = self._context.decisions.of((node.id,), DecisionKind.DYNAMIC_FILTER)
        return any(decision.figures.get(SKIPS) for decision in made if self._is_about(decision, ref))

    def _is_about(self, decision: Decision, ref: DynamicFilterRef) -> bool:
        source, _ = self._given_by(ref)
        return (decision.figures.get(JOIN), decision.figures.get(SIDE)) == (source.join_id, source.side)

    def _tell(self, node: StreamNode, ref: DynamicFilterRef, instead: str, because: str) -> None:
        """Settle the decision to filter a node with what was done instead."""

        def is_meant(decision: Decision) -> bool:
            return self._is_about(decision, ref)

        self._context.decisions.came_otherwise(
            DecisionKind.DYNAMIC_FILTER, NodeRef(node.id, node.name), instead, because, is_meant
        )

    def _worth_handing_over(
        self, source: SourcePlan, keys: KeySet, expressions: tuple[Expression, ...]
    ) -> tuple[list[Expression], str]:
        """Return the conditions that a source is given, and why it is not given all that could leave rows out."""
        if source.scan.is_cut_by_spark:
            return [], source.scan.reason
        if source.leaf.name == "LogicalRelation" and source.leaf.files is None:
            if is_jdbc_relation(source.leaf):
                return key_conditions(source.leaf, keys, expressions)
            if isinstance(source.scan, PlainScan):
                return [], "it is not known how a source of Spark's first interface compares values"
        conditions = filters.for_sources(keys, expressions)
        if not isinstance(source.scan, FileScan) or not conditions:
            return conditions, ""
        listing = source.scan.listing()
        if listing.format != "parquet" or catalyst.is_partitioned_by(source.leaf, expressions):
            return conditions, ""
        return self._by_statistics(listing, conditions)

    def _by_statistics(self, listing: FileListing, conditions: list[Expression]) -> tuple[list[Expression], str]:
        """Return the conditions if they leave out row groups of parquet by their statistics, else why not."""
        try:
            left = row_groups_left(listing.paths, conditions)
        except Exception as error:
            # The decision says it, and whoever reads the files meets what is wrong with them.
            log.info("the statistics of %s could not be compared with keys", listing.name, exc_info=True)
            return [], f"the statistics of {listing.name} could not be read: {first_line(error)}"
        if left > _WORTH_READING:
            return [], f"{left:.0%} of the row groups of {listing.name} may have such keys{_BY_STATISTICS}"
        return conditions, ""

    def fetch(self, session: Session, node: StreamNode) -> None:
        """Fetch the key sets of a node by queries on this thread; of several threads one does it."""
        for ref in node.filters:
            name = self._given_by(ref)
            with self._lock:
                lock = self._locks.setdefault(name, threading.Lock())
            with lock:
                if name not in self._sets:
                    self._sets[name] = self._collected(session, ref, name)
            if name in self._problems:
                self._tell(node, ref, "rows are not filtered", self._problems[name])

    def clear(self) -> None:
        """Forget all key sets."""
        self._sets.clear()
        self._for_sources.clear()

    def info(self, node: StreamNode) -> KeyFilter | None:
        """Return what a source may know of its filters."""
        found = [(keys, at) for _, keys, at in self._of(node, node) if all(one.is_attribute for one in at)]
        columns = dict.fromkeys(key.name for _, expressions in found for key in expressions)

        def spell() -> str:
            texts = [part.sql for keys, at in found for part in filters.for_sources(keys, at)]
            return " AND ".join(["false"] if any(keys.is_empty for keys, _ in found) else texts)

        return KeyFilter(tuple(columns), spell) if columns else None

    def _given_by(self, ref: DynamicFilterRef) -> _Given:
        join = self._context.graph.node(ref.join_id).operator
        assert isinstance(join, JoinOperator)
        source = join.filters[ref.path].filter_source
        return source, tuple(key.key for key in self._path(ref).source_keys)

    def _collected(self, session: Session, ref: DynamicFilterRef, name: _Given) -> KeySet | None:
        try:
            found = self._collect(session, ref)
        except VerificationError:
            raise
        except Exception as error:
            log.warning("the keys of %s could not be fetched", ref, exc_info=True)
            self._problems[name] = f"the keys could not be fetched: {first_line(error)}"
            return None
        if found is None:
            self._problems[name] = "keys cannot be told of this side"
        return found

    def _collect(self, session: Session, ref: DynamicFilterRef) -> KeySet | None:
        source, _ = self._given_by(ref)
        join = equi_join(self._context.graph, source.join_id)
        assert join is not None
        edge = join.edges[source.side]
        result = self._results.get(edge.source_id)
        if result is None or result.rows is None:
            return None
        plan = self._plan.edges[edge.id]
        output = plan.attributes
        if not plan.child.is_deterministic:
            return None
        keys, rows = self._path(ref).source_keys, result.rows
        if isinstance(result, StagedResult) and is_broadcast(edge) and plan.write is WriteKind.SIDE:
            result = self._broadcasts.relation(edge, result) or result  # it is made for the join anyway
        if isinstance(result, BroadcastResult):
            relation = result.relation
            found = filters.keys_of_relation(relation, output, keys, rows, self._context.exact_keys)

            def breaks(breach: Expression) -> bool:
                return filters.is_met_in_relation(relation, output, breach)
        else:
            leaf = self._rows_of(result, output)
            found = filters.collect_keys(session, leaf, keys, rows, self._context.exact_keys)

            def breaks(breach: Expression) -> bool:
                return is_met(session, leaf, breach)

        if self._context.verify and found is not None and breaks(ruled_out(keys, found)):
            keys_of = f"the {source.side} side of node {source.join_id}"
            raise VerificationError.key_left_out(f"the filter by keys of {keys_of}")
        return found

    def _rows_of(self, result: StagedResult, output: Attributes) -> LogicalPlan:
        """Return a finished result's rows as a leaf."""
        width = result.subpartitions
        plan = exchange.as_cut(result, spread_by_count(width, min(_READERS, width)))
        return fragment.rdd_leaf(self._context.bridge.session, output, plan.rows())
