"""Creates the sources for the leaves of a plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from penstock.config import Configuration, Option, table_option
from penstock.config.options import (
    DATA_VOLUME_PER_TASK,
    HIVE_INFER_MAX,
    HIVE_INFER_MODE,
    SCAN_INFER_ENABLED,
    SCAN_INFER_MAX,
    SCAN_MAX_CONNECTIONS,
    SCAN_PARALLELISM,
)
from penstock.connectors.core.base import (
    DataFrameScanProvider,
    DynamicParallelismInference,
    ParallelismInferenceContext,
    ParallelismProvider,
)
from penstock.connectors.core.coordinator import SourceCoordinator
from penstock.connectors.core.provided import ProvidedScan
from penstock.connectors.core.scan import PlainScan, Scan
from penstock.connectors.core.scan_parallelism import ScanOptions, infers_parallelism, limit_parallelism
from penstock.connectors.files.file_scan import FileScan
from penstock.connectors.jdbc import JdbcScan, dialect_of
from penstock.connectors.tables.hive import HiveScan
from penstock.errors import ConfigError, SourceError
from penstock.planner.plan import SourcePlan
from penstock.spark.io import files, hive, jdbc
from penstock.spark.run import jobs

if TYPE_CHECKING:
    from penstock.connectors.core.base import Source
    from penstock.hints.plan_hints import PlanHint
    from penstock.planner.whole_queries import SparkQuery
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.jdbc import JdbcRelation
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode

_SOURCE_NAMES = {  # of leaves without a table, by operator
    "LocalRelation": "rows in memory",
    "Range": "range",
    "InMemoryRelation": "cached data",
    "LogicalRDD": "RDD",
    "OneRowRelation": "one row",
    "UnionLoop": "recursion",
}

_SCAN_OPTIONS = (SCAN_PARALLELISM, SCAN_INFER_ENABLED, SCAN_INFER_MAX, SCAN_MAX_CONNECTIONS)
_SCAN_KEYS = [key for option in _SCAN_OPTIONS for key in (option.key, *option.aliases)]


@dataclass(eq=False)
class SourceFactory:
    """Creates the sources of a job.

    Options of a table or reader override `config`. `whole_queries` has the queries that run as a whole, by the leaf
    that replaces their plan. `split_by_spark` are leaves that only Spark may split, as the result depends on the split.
    """

    _bridge: Bridge
    _config: Configuration
    _whole_queries: Mapping[LogicalNode, SparkQuery]
    _split_by_spark: Collection[LogicalNode]

    def __post_init__(self) -> None:
        self._cores = jobs.cluster_cores(self._bridge)
        self._volume = self._config.integer(DATA_VOLUME_PER_TASK)

    def create(self, leaf: LogicalNode, filtered: LogicalNode, hint: PlanHint | None, limit: int | None) -> SourcePlan:
        """Return the source of a leaf.

        `filtered` is the leaf with the filters directly above it. `hint` (the user's settings for the leaf) and `limit`
        (the maximum rows that the query needs) may be None. Raises `ConfigError` for unknown or invalid table options.
        """
        if leaf in self._whole_queries:
            query = self._whole_queries[leaf]
            return SourcePlan(leaf, SourceCoordinator(query.name, None), ScanOptions(), None, leaf, query)
        user_source = hint.source if hint else None
        name, table_options, scan = self._scan(leaf, filtered, user_source)
        if user_source is not None:
            name = user_source.name
        inferring_source = scan.parallelism_source(user_source)
        static_parallelism = hint.static_parallelism if hint else None
        if static_parallelism is None and isinstance(user_source, ParallelismProvider):
            static_parallelism = user_source.parallelism
        options = self._options(table_options, name, hint)
        if leaf in self._split_by_spark or (hive.is_hive_relation(leaf) and hive.skips_corrupt_files(self._bridge)):
            plain_scan = PlainScan(leaf, "its rows depend on its tasks")
            return SourcePlan(leaf, SourceCoordinator(name, None), options, static_parallelism, filtered, plain_scan)
        if hive.is_hive_table(leaf):  # read with Hive's SerDes or by a reader of Spark
            mode, maximum = self._config.get(HIVE_INFER_MODE), self._config.integer(HIVE_INFER_MAX)
            options = replace(options, infer=options.infer and mode != "none", kind_max=maximum)
            infers_while_planning = mode == "static" and infers_parallelism(options, static_parallelism)
            if infers_while_planning and isinstance(inferring_source, DynamicParallelismInference):
                inferred = inferring_source.infer_parallelism(ParallelismInferenceContext(maximum, self._volume))
                static_parallelism = limit_parallelism(inferred, limit) if inferred > 0 else None
        return SourcePlan(leaf, SourceCoordinator(name, inferring_source), options, static_parallelism, filtered, scan)

    def _scan(
        self, leaf: LogicalNode, plan: LogicalPlan, user_source: Source | None
    ) -> tuple[str, Mapping[str, str], Scan]:
        """Return the name of a source, the options of its table, and its scan; `plan` is the leaf with its filters."""
        if isinstance(user_source, DataFrameScanProvider):
            return user_source.name, {}, ProvidedScan(self._bridge, user_source, leaf, plan, self._cores, self._volume)
        if files.is_split_by_size(leaf):
            assert leaf.files is not None
            return leaf.files.name, leaf.files.options, FileScan(leaf, plan, self._cores)
        if jdbc.is_jdbc_relation(leaf):
            relation = jdbc.JdbcRelation(leaf)
            scan = self._jdbc_scan(relation, plan) or PlainScan(leaf)
            return relation.table, relation.options, scan
        if hive.is_hive_relation(leaf):  # read with Hive's SerDes
            table = HiveScan(leaf, plan)
            return table.name, table.options, table
        return _SOURCE_NAMES.get(leaf.name, leaf.name), {}, PlainScan(leaf)

    def _jdbc_scan(self, relation: JdbcRelation, plan: LogicalPlan) -> Scan | None:
        """Return a scan that splits a database relation, or None if the user has split it or its dialect is unknown."""
        dialect = dialect_of(relation.url)
        if relation.user_tasks > 1 or dialect is None:
            return None
        table_value = table_option(SCAN_MAX_CONNECTIONS, relation.options, relation.table)
        connections = self._config.get(SCAN_MAX_CONNECTIONS) if table_value is None else table_value
        request = cache(lambda: relation.request(plan))
        return JdbcScan(relation, dialect, request, self._cores, connections if isinstance(connections, int) else None)

    def _options(self, table_options: Mapping[str, str], name: str, hint: PlanHint | None) -> ScanOptions:
        unknown = [key for key in table_options if key.startswith("scan.") and key not in _SCAN_KEYS]
        if unknown:
            raise ConfigError.unknown_key(unknown[0], _SCAN_KEYS, f"the options of {name}")

        def value(option: Option) -> object:
            table_value = table_option(option, table_options, name)
            return self._config.get(option) if table_value is None else table_value

        parallelism: object = hint.parallelism if hint else None
        if parallelism is None:
            parallelism = value(SCAN_PARALLELISM)
        infer_max = value(SCAN_INFER_MAX)
        if parallelism is not None and not isinstance(parallelism, int):
            raise SourceError.bad_parallelism(parallelism, name)
        return ScanOptions(
            parallelism=parallelism,
            infer=value(SCAN_INFER_ENABLED) is True,
            infer_max=infer_max if isinstance(infer_max, int) else None,
        )
