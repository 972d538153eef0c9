"""Collects the keys of finished join sides, once each, and builds dynamic filters from them."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from penstock.connectors.core.base import KeyFilter
from penstock.connectors.core.scan import PlainScan
from penstock.connectors.files.file_scan import FileScan
from penstock.connectors.jdbc.keys import key_conditions
from penstock.decisions.log import Decision, DecisionKind, NodeRef
from penstock.errors import VerificationError, first_line
from penstock.graph import CalcOperator, DynamicFilterRef, JoinInput, JoinOperator, StreamNode
from penstock.optimizer.dynamic_filtering import JOIN_FIGURE, SIDE_FIGURE, SKIPS_FIGURE
from penstock.optimizer.graphs import equi_join, is_broadcast
from penstock.planner.plan import SourcePlan, SparkFilterPath, WriteKind
from penstock.sizing.packing import spread_by_count
from penstock.spark.errors import is_cancelled
from penstock.spark.io.jdbc import is_jdbc_relation
from penstock.spark.io.parquet import row_group_fraction
from penstock.spark.plans import catalyst, fragment
from penstock.spark.run import exchange, filters
from penstock.spark.run.exchange import BroadcastResult, StagedResult
from penstock.spark.run.verification import dropped_keys_condition, has_matching_row

if TYPE_CHECKING:
    from penstock.execution.broadcasts import Broadcasts
    from penstock.execution.context import JobContext
    from penstock.execution.results import ResultStore
    from penstock.spark.bridge.handles import Session
    from penstock.spark.io.files import FileListing
    from penstock.spark.plans.expressions import Expression
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.run.filters import KeySet

log = logging.getLogger("penstock.scheduler")

_KeySource = tuple["JoinInput", tuple[str, ...]]
"""The join input that keys are collected from, and the texts of the keys, see `Expression.key`."""
_BY_STATISTICS = ", by their statistics"
"""The end of the reason that statistics exclude too few row groups; `_push_down` recognizes the reason by it."""
_MAX_ROW_GROUP_FRACTION = 0.7
"""Conditions are pushed down to Parquet if at most this fraction of the row groups must still be read."""
_READER_TASKS = 2
"""The number of tasks that read the keys; a task per core would leave most tasks nearly empty."""


class DynamicFilters:
    """The dynamic filters of a job, and the keys that they use."""

    def __init__(self, context: JobContext, results: ResultStore, broadcasts: Broadcasts) -> None:
        self._context = context
        self._plan = context.plan
        self._results = results
        self._broadcasts = broadcasts
        self._problems: dict[_KeySource, str] = {}
        self._key_sets: dict[_KeySource, KeySet | None] = {}
        self._pushed_down: dict[tuple[int, KeySet], list[Expression]] = {}
        self._locks: dict[_KeySource, threading.Lock] = {}
        self._lock = threading.Lock()

    def apply(self, node: StreamNode, plan: LogicalPlan) -> LogicalPlan:
        """Return a node's plan without the rows that its filters exclude; the filter keys must have been collected.

        The Bloom filter is applied directly above the node; for a source, above the Calc of `_calc_above`, if any.
        """
        conditions: list[Expression] = []
        for ref, keys, expressions in self._keys_at(node, node):
            if keys.is_empty:
                return fragment.placeholder(plan.output)
            conditions += self._push_down(node, ref, keys, expressions)
            if self._calc_above(node) is None:
                conditions.append(filters.might_contain(keys, expressions))
        for edge in self._context.graph.in_edges(node.id):
            source = self._context.graph.node(edge.source_id)
            if source.filters and self._calc_above(source) == node.id:
                for _, keys, expressions in self._keys_at(source, node):
                    if not keys.is_empty:
                        conditions.append(filters.might_contain(keys, expressions))
        return plan.filtered_by(conditions)

    def _calc_above(self, node: StreamNode) -> int | None:
        """Return the id of a cheap Calc directly above a source if all filters can be applied above it, else None."""
        outgoing = self._context.graph.out_edges(node.id)
        if node.id not in self._plan.sources or len(outgoing) != 1 or not outgoing[0].is_forward:
            return None
        target = self._context.graph.node(outgoing[0].target_id)
        has_targets = all(any(p.node_id == target.id for p in self._path(ref).targets) for ref in node.filters)
        is_cheap = isinstance(target.operator, CalcOperator) and target.operator.is_cheap
        return target.id if is_cheap and has_targets else None

    def _path(self, ref: DynamicFilterRef) -> SparkFilterPath:
        return self._plan.nodes[ref.join_id].filter_paths[ref.path]

    def _keys_at(
        self, node: StreamNode, output_node: StreamNode
    ) -> list[tuple[DynamicFilterRef, KeySet, tuple[Expression, ...]]]:
        """Return each filter of a node that has keys, the keys, and the key expressions on rows of `output_node`."""
        keys_at = []
        for ref in node.filters:
            path = self._path(ref)
            keys = self._key_sets.get(self._key_source(ref))
            target = next((target for target in path.targets if target.node_id == output_node.id), None)
            if keys is not None and target is not None:
                keys_at.append((ref, keys, catalyst.rebind(path.keys, path.ids, target.operator, target.ids)))
        return keys_at

    def _push_down(
        self, node: StreamNode, ref: DynamicFilterRef, keys: KeySet, expressions: tuple[Expression, ...]
    ) -> list[Expression]:
        """Return the conditions to push down to a source, and record why if any are left out.

        Parquet only gets conditions on partition columns, and conditions that exclude row groups by statistics. For any
        other condition, the Parquet reader decodes dictionaries, which can cost more than reading the column.
        """
        source = self._plan.sources.get(node.id)
        if source is None or not all(expression.is_attribute for expression in expressions):
            return []
        if (node.id, keys) not in self._pushed_down:
            conditions, problem = self._source_conditions(source, keys, expressions)
            self._pushed_down[node.id, keys] = conditions
            # Usually, statistics exclude few row groups: record that only if the decision predicted skipped data.
            decisions = self._context.decisions.of((node.id,), DecisionKind.DYNAMIC_FILTER)
            filter_decisions = (decision for decision in decisions if self._is_about_filter(ref, decision))
            is_predicted = any(decision.figures.get(SKIPS_FIGURE) for decision in filter_decisions)
            if problem and (not problem.endswith(_BY_STATISTICS) or is_predicted):
                self._record_fallback(node, ref, "rows are filtered only after they were read", problem)
        return self._pushed_down[node.id, keys]

    def _is_about_filter(self, ref: DynamicFilterRef, decision: Decision) -> bool:
        source, _ = self._key_source(ref)
        return (decision.figures.get(JOIN_FIGURE), decision.figures.get(SIDE_FIGURE)) == (source.join_id, source.side)

    def _record_fallback(self, node: StreamNode, ref: DynamicFilterRef, instead: str, because: str) -> None:
        subject, is_about = NodeRef(node.id, node.name), partial(self._is_about_filter, ref)
        self._context.decisions.record_fallback(DecisionKind.DYNAMIC_FILTER, subject, instead, because, is_about)

    def _source_conditions(
        self, source: SourcePlan, keys: KeySet, expressions: tuple[Expression, ...]
    ) -> tuple[list[Expression], str]:
        """Return the conditions that a source supports and benefits from, and why others are omitted, or ""."""
        if source.scan.is_divided_by_spark:
            return [], source.scan.reason
        if source.leaf.name == "LogicalRelation" and source.leaf.files is None:
            if is_jdbc_relation(source.leaf):
                return key_conditions(source.leaf, keys, expressions)
            if isinstance(source.scan, PlainScan):
                return [], "it is unknown how a DataSource V1 source compares values"
        conditions = filters.source_conditions(keys, expressions)
        if not isinstance(source.scan, FileScan) or not conditions:
            return conditions, ""
        listing = source.scan.listing()
        if listing.format != "parquet" or catalyst.is_partitioned_by(source.leaf, expressions):
            return conditions, ""
        return self._by_statistics(listing, conditions)

    def _by_statistics(self, listing: FileListing, conditions: list[Expression]) -> tuple[list[Expression], str]:
        """Return the conditions if they exclude enough row groups by statistics, else an empty list and the reason."""
        try:
            fraction = row_group_fraction(listing.paths, conditions)
        except Exception as error:
            # The error is only recorded: if the files are broken, reading their rows raises an error, too.
            log.info("the statistics of %s could not be compared with keys", listing.name, exc_info=True)
            return [], f"the statistics of {listing.name} could not be read: {first_line(error)}"
        if fraction > _MAX_ROW_GROUP_FRACTION:
            return [], f"{fraction:.0%} of the row groups of {listing.name} may have such keys{_BY_STATISTICS}"
        return conditions, ""

    def collect(self, session: Session, node: StreamNode) -> None:
        """Collect the keys for the filters of a node by queries on this thread; each key set is collected only once."""
        for ref in node.filters:
            key_source = self._key_source(ref)
            with self._lock:
                lock = self._locks.setdefault(key_source, threading.Lock())
            with lock:
                if key_source not in self._key_sets:
                    self._key_sets[key_source] = self._try_collect(session, ref, key_source)
            if key_source in self._problems:
                self._record_fallback(node, ref, "rows are not filtered", self._problems[key_source])

    def release(self) -> None:
        """Release all key sets."""
        self._key_sets.clear()
        self._pushed_down.clear()

    def source_filter(self, node: StreamNode) -> KeyFilter | None:
        """Return a source node's filters as a condition for the source; None if no filter has only columns as keys."""
        column_keys = [
            (keys, expressions)
            for _, keys, expressions in self._keys_at(node, node)
            if all(expression.is_attribute for expression in expressions)
        ]
        columns = dict.fromkeys(key.name for _, expressions in column_keys for key in expressions)

        def condition_sql() -> str:
            if any(keys.is_empty for keys, _ in column_keys):
                return "false"
            conditions = [filters.source_conditions(keys, expressions) for keys, expressions in column_keys]
            return " AND ".join(condition.sql for parts in conditions for condition in parts)

        return KeyFilter(tuple(columns), condition_sql) if columns else None

    def _key_source(self, ref: DynamicFilterRef) -> _KeySource:
        join = self._context.graph.node(ref.join_id).operator
        assert isinstance(join, JoinOperator)
        filter_source = join.filters[ref.path].filter_source
        return filter_source, tuple(key.key for key in self._path(ref).source_keys)

    def _try_collect(self, session: Session, ref: DynamicFilterRef, key_source: _KeySource) -> KeySet | None:
        try:
            keys = self._collect(session, ref)
        except Exception as error:
            if isinstance(error, VerificationError) or is_cancelled(error):
                raise
            log.warning("the keys of %s could not be collected", ref, exc_info=True)
            self._problems[key_source] = f"the keys could not be collected: {first_line(error)}"
            return None
        if keys is None:
            self._problems[key_source] = "the keys of this side cannot be collected"
        return keys

    def _collect(self, session: Session, ref: DynamicFilterRef) -> KeySet | None:
        filter_source, _ = self._key_source(ref)
        join = equi_join(self._context.graph, filter_source.join_id)
        assert join is not None
        edge = join.edges[filter_source.side]
        result = self._results.get(edge.source_id)
        if result is None or result.rows is None:
            return None
        plan = self._plan.edges[edge.id]
        output = plan.attributes
        if not plan.child.is_deterministic:  # a rerun task may write rows with other keys
            return None
        keys, rows = self._path(ref).source_keys, result.rows
        if isinstance(result, StagedResult) and is_broadcast(edge) and plan.write is WriteKind.SIDE:
            result = self._broadcasts.relation(edge, result) or result  # the join needs this relation anyway
        if isinstance(result, BroadcastResult):
            relation = result.relation
            key_set = filters.collect_relation_keys(relation, output, keys, rows, self._context.exact_keys)

            def has_row(condition: Expression) -> bool:
                return filters.any_row_matches(relation, output, condition)
        else:
            ranges = spread_by_count(result.subpartitions, min(_READER_TASKS, result.subpartitions))
            leaf = fragment.rdd_leaf(self._context.bridge.session, output, exchange.read_ranges(result, ranges).rows())
            key_set = filters.collect_keys(session, leaf, keys, rows, self._context.exact_keys)

            def has_row(condition: Expression) -> bool:
                return has_matching_row(session, leaf, condition)

        if self._context.verify and key_set is not None and has_row(dropped_keys_condition(keys, key_set)):
            side = f"the {filter_source.side} side of node {filter_source.join_id}"
            raise VerificationError.of(f"the filter by keys of {side} drops a row that it must keep")
        return key_set
