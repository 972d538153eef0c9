"""Making sources of the leaves of a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from penstock.config import table_option
from penstock.config.options import (
    DATA_VOLUME_PER_TASK,
    HIVE_INFER_MAX,
    HIVE_INFER_MODE,
    SCAN_INFER_ENABLED,
    SCAN_INFER_MAX,
    SCAN_MAX_CONNECTIONS,
    SCAN_PARALLELISM,
)
from penstock.connectors.base import (
    DataFrameScanProvider,
    DynamicParallelismInference,
    ParallelismInferenceContext,
    ParallelismProvider,
)
from penstock.connectors.coordinator import SourceCoordinator
from penstock.connectors.file_scan import FileScan
from penstock.connectors.hive import HiveScan
from penstock.connectors.jdbc import JdbcScan, dialect_of
from penstock.connectors.plain_scan import PlainScan
from penstock.connectors.provided import ProvidedScan
from penstock.connectors.scan_parallelism import ScanOptions, is_asked, limited
from penstock.errors import ConfigError, SourceError
from penstock.planner.plan import SourcePlan
from penstock.planner.spark_query import query_source
from penstock.spark import files, hive, jdbc, jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.config import Configuration, Option
    from penstock.connectors.base import Source
    from penstock.connectors.scan import Scan
    from penstock.plan_hints import PlanHint
    from penstock.planner.spark_query import SparkQuery
    from penstock.spark.jdbc import JdbcRelation
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode

_NAMES = {
    "LocalRelation": "rows in memory",
    "Range": "range",
    "InMemoryRelation": "cached data",
    "LogicalRDD": "RDD",
    "OneRowRelation": "one row",
    "UnionLoop": "recursion",
}


_OF_TABLES = (SCAN_PARALLELISM, SCAN_INFER_ENABLED, SCAN_INFER_MAX, SCAN_MAX_CONNECTIONS)
_TABLE_OPTIONS = [key for option in _OF_TABLES for key in (option.key, *option.aliases)]


class SourceMaker:
    """Makes sources.

    Parameters
    ----------
    bridge
        The session.
    config
        The job's options; those of a table or reader win.
    whole_queries
        Leaves that stand for whole queries, and how these are run.
    cut_by_spark
        Leaves whose tasks have to be those that Spark makes.
    """

    def __init__(
        self,
        bridge: Bridge,
        config: Configuration,
        whole_queries: Mapping[LogicalNode, SparkQuery] | None = None,
        cut_by_spark: Collection[LogicalNode] = (),
    ) -> None:
        self._bridge = bridge
        self._whole_queries = whole_queries or {}
        self._cut_by_spark = cut_by_spark
        self._config = config
        self._cores = jobs.cluster_cores(bridge)
        self._volume = config.integer(DATA_VOLUME_PER_TASK)

    def make(
        self, leaf: LogicalNode, filtered: LogicalNode, hint: PlanHint | None, limit: int | None = None
    ) -> SourcePlan:
        """Return the source of a leaf.

        Parameters
        ----------
        leaf
            A node without children.
        filtered
            The leaf with the filters right above it.
        hint
            What the user said at this place.
        limit
            The most rows that are wanted of it, None where that is not known.

        Raises
        ------
        ConfigError
            If an option of the table has a value that is not allowed.
        """
        if leaf in self._whole_queries:
            return query_source(leaf, self._whole_queries[leaf])
        if leaf in self._cut_by_spark or (hive.is_hive_relation(leaf) and hive.skips_corrupt(self._bridge)):
            return self._make(leaf, filtered, hint, limit, PlainScan(leaf, "which rows it gives depends on its tasks"))
        return self._make(leaf, filtered, hint, limit)

    def _make(
        self,
        leaf: LogicalNode,
        filtered: LogicalNode,
        hint: PlanHint | None,
        limit: int | None,
        uncut: Scan | None = None,
    ) -> SourcePlan:
        """Return a source whose parallelism Penstock decides, unless it has to be read as a given scan does."""
        given = hint.source if hint else None
        name, table_options, scan = self._scan(leaf, filtered, given)
        if given is not None:
            name = given.name
        asked = scan.asked(given)
        static = hint.static if hint else None
        if static is None and isinstance(given, ParallelismProvider):
            static = given.parallelism
        options = self._options(table_options, name, hint)
        if uncut is not None:
            return SourcePlan(leaf, SourceCoordinator(name, None), options, static, filtered, uncut)
        if hive.is_hive_table(leaf):
            mode = self._config.get(HIVE_INFER_MODE)
            most = self._config.integer(HIVE_INFER_MAX)
            options = replace(options, infer=options.infer and mode != "none", kind_max=most)
            if mode == "static" and is_asked(options, static) and isinstance(asked, DynamicParallelismInference):
                static = self._static(asked, limit)
        return SourcePlan(leaf, SourceCoordinator(name, asked), options, static, filtered, scan)

    def _scan(self, leaf: LogicalNode, plan: LogicalPlan, given: Source | None) -> tuple[str, Mapping[str, str], Scan]:
        """Return the name of a source, the options of its table, and how it is read."""
        if isinstance(given, DataFrameScanProvider):
            return given.name, {}, ProvidedScan(self._bridge, given, leaf, plan, self._cores, self._volume)
        if files.is_cut_by_size(leaf):
            assert leaf.files is not None
            return leaf.files.name, leaf.files.options, FileScan(leaf, plan, self._cores)
        if jdbc.is_jdbc_relation(leaf):
            relation = jdbc.JdbcRelation(leaf)
            scan = self._jdbc_scan(relation, plan) or PlainScan(leaf)
            return relation.table, relation.options, scan
        if hive.is_hive_relation(leaf):
            table = HiveScan(leaf, plan)
            return table.name, table.options, table
        return _NAMES.get(leaf.name, leaf.name), {}, PlainScan(leaf)

    def _static(self, source: DynamicParallelismInference, limit: int | None) -> int | None:
        """Return what a source infers of what is known when planning, None for no answer."""
        bound = self._config.integer(HIVE_INFER_MAX)
        inferred = source.infer_parallelism(ParallelismInferenceContext(bound, self._volume))
        return limited(inferred, limit) if inferred > 0 else None

    def _jdbc_scan(self, relation: JdbcRelation, plan: LogicalPlan) -> Scan | None:
        """Return what cuts a relation of a database, None where the user has cut it or the database is not known."""
        dialect = dialect_of(relation.url)
        if relation.parts > 1 or dialect is None:
            return None
        own = table_option(SCAN_MAX_CONNECTIONS, relation.options, relation.table)
        most = self._config.get(SCAN_MAX_CONNECTIONS) if own is None else own
        request = cache(lambda: relation.request(plan))
        return JdbcScan(relation, dialect, request, self._cores, most if isinstance(most, int) else None)

    def _options(self, table_options: Mapping[str, str], name: str, hint: PlanHint | None) -> ScanOptions:
        unknown = [key for key in table_options if key.startswith("scan.") and key not in _TABLE_OPTIONS]
        if unknown:
            raise ConfigError.unknown_key(unknown[0], _TABLE_OPTIONS, f"the options of {name}")

        def value(option: Option) -> object:
            own = table_option(option, table_options, name)
            return self._config.get(option) if own is None else own

        given = hint.parallelism if hint else None
        parallelism = given if given is not None else value(SCAN_PARALLELISM)
        infer_max = value(SCAN_INFER_MAX)
        if parallelism is not None and not isinstance(parallelism, int):
            raise SourceError.bad_parallelism(parallelism, name)
        return ScanOptions(
            parallelism=parallelism,
            infer=value(SCAN_INFER_ENABLED) is True,
            infer_max=infer_max if isinstance(infer_max, int) else None,
        )
