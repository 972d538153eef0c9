"""Making sources of the leaves of a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

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
from penstock.connectors.files import FileSource
from penstock.connectors.hive import HiveScan
from penstock.connectors.jdbc import JdbcScan, dialect_of
from penstock.connectors.provided import ProvidedScan
from penstock.connectors.scan_parallelism import ScanOptions, is_asked, limited
from penstock.errors import ConfigError, SourceError
from penstock.planner.plan import SourcePlan
from penstock.planner.spark_query import spark_query
from penstock.spark import catalyst, files, hive, jdbc, jobs

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.config import Configuration, Option
    from penstock.connectors.base import SplitScan
    from penstock.marks import Mark
    from penstock.spark.jdbc import JdbcRelation
    from penstock.spark.jvm import Bridge
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
    run_by_spark
        Leaves that stand for whole queries, and why Spark has to run those.
    cut_by_spark
        Leaves whose tasks have to be those that Spark makes.
    """

    def __init__(
        self,
        bridge: Bridge,
        config: Configuration,
        run_by_spark: Mapping[LogicalNode, str] | None = None,
        cut_by_spark: Collection[LogicalNode] = (),
    ) -> None:
        self._bridge = bridge
        self._run_by_spark = run_by_spark or {}
        self._cut_by_spark = cut_by_spark
        self._config = config
        self._cores = jobs.cluster_cores(bridge)
        self._volume = config.integer(DATA_VOLUME_PER_TASK)

    def make(self, leaf: LogicalNode, scan: LogicalNode, mark: Mark | None, limit: int | None = None) -> SourcePlan:
        """Return the source of a leaf.

        Parameters
        ----------
        leaf
            A node without children.
        scan
            The leaf with the filters right above it.
        mark
            What the user said at this place.
        limit
            The most rows that are wanted of it, None where that is not known.

        Raises
        ------
        ConfigError
            If an option of the table has a value that is not allowed.
        """
        if leaf in self._run_by_spark:
            return spark_query(self._bridge, leaf, self._run_by_spark[leaf])
        if leaf in self._cut_by_spark:
            name = leaf.files.name if leaf.files is not None else _NAMES.get(leaf.name, leaf.name)
            size = catalyst.size_in_bytes(leaf.handle)
            return SourcePlan(leaf, SourceCoordinator(name, None), ScanOptions(), None, None, size, scan)
        return self._make(leaf, scan, mark, limit)

    def _make(self, leaf: LogicalNode, scan: LogicalNode, mark: Mark | None, limit: int | None) -> SourcePlan:
        """Return a source whose parallelism Penstock decides."""
        given = mark.source if mark else None
        name = _NAMES.get(leaf.name, leaf.name)
        table_options: Mapping[str, str] = {}
        listing = None
        splits: SplitScan | None = None
        source: object = given
        if isinstance(given, DataFrameScanProvider):
            splits = source = ProvidedScan(self._bridge, given, leaf.handle, scan.handle, self._cores, self._volume)
        elif files.is_cut_by_size(leaf):
            assert leaf.files is not None
            name, table_options = leaf.files.name, leaf.files.options
            listing = cache(lambda: files.list_files(self._bridge, self._bridge.session, leaf, scan.handle))
            if given is None or isinstance(given, FileSource):
                source = (given or FileSource(name)).with_listing(listing, self._cores)
        elif jdbc.is_jdbc_relation(leaf.handle):
            relation = jdbc.JdbcRelation(self._bridge, leaf.handle)
            name, table_options = relation.table, relation.options
            splits = source = self._jdbc_scan(relation, table_options, scan.handle)
        elif hive.is_hive_relation(leaf):
            table = hive.HiveRelation(self._bridge, leaf.handle, scan.handle)
            name, table_options = table.name, table.options
            splits = source = HiveScan(self._bridge, table)
        if given is not None:
            name = given.name
        static = mark.static if mark else None
        if static is None and isinstance(given, ParallelismProvider):
            static = given.parallelism
        options = self._options(table_options, name, mark)
        if hive.is_hive_table(leaf):
            mode = self._config.get(HIVE_INFER_MODE)
            most = self._config.integer(HIVE_INFER_MAX)
            options = replace(options, infer=options.infer and mode != "none", kind_max=most)
            if mode == "static" and is_asked(options, static) and isinstance(source, DynamicParallelismInference):
                static = self._static(source, limit)
        return SourcePlan(
            leaf=leaf,
            coordinator=SourceCoordinator(name, source),
            options=options,
            static=static,
            listing=listing,
            size_in_bytes=catalyst.size_in_bytes(leaf.handle),
            scan=scan,
            splits=splits,
        )

    def _static(self, source: DynamicParallelismInference, limit: int | None) -> int | None:
        """Return what a source infers of what is known when planning, None for no answer."""
        bound = self._config.integer(HIVE_INFER_MAX)
        inferred = source.infer_parallelism(ParallelismInferenceContext(bound, self._volume))
        return limited(inferred, limit) if inferred > 0 else None

    def _jdbc_scan(self, relation: JdbcRelation, options: Mapping[str, str], scan: Any) -> JdbcScan | None:
        """Return what cuts a relation of a database, None where the user has cut it or the database is not known."""
        dialect = dialect_of(relation.url)
        if relation.parts > 1 or dialect is None:
            return None
        own = table_option(SCAN_MAX_CONNECTIONS, options, relation.table)
        most = self._config.get(SCAN_MAX_CONNECTIONS) if own is None else own
        request = cache(lambda: relation.request(scan))
        return JdbcScan(relation, dialect, request, self._cores, most if isinstance(most, int) else None)

    def narrowed(self, source: SourcePlan, scan: Any) -> SourcePlan:
        """Return a source as it is once its rows are filtered further.

        Parameters
        ----------
        source
            The source.
        scan
            The plan of its relation with all filters above it, in the JVM.
        """
        if isinstance(source.splits, ProvidedScan):
            splits: SplitScan | None = source.splits.narrowed(scan)
            return replace(source, splits=splits, coordinator=SourceCoordinator(source.coordinator.name, splits))
        if isinstance(source.splits, HiveScan):
            splits = HiveScan(self._bridge, hive.HiveRelation(self._bridge, source.leaf.handle, scan))
            return replace(source, splits=splits, coordinator=SourceCoordinator(source.coordinator.name, splits))
        if source.splits is not None:
            relation = jdbc.JdbcRelation(self._bridge, source.leaf.handle)
            splits = self._jdbc_scan(relation, relation.options, scan)
            return replace(source, splits=splits, coordinator=SourceCoordinator(source.coordinator.name, splits))
        if source.listing is None:
            return source
        listing = cache(lambda: files.list_files(self._bridge, self._bridge.session, source.leaf, scan))
        name, asked = source.coordinator.name, source.coordinator.source
        if isinstance(asked, FileSource):
            asked = asked.with_listing(listing, self._cores)
        return replace(source, listing=listing, coordinator=SourceCoordinator(name, asked))

    def _options(self, table_options: Mapping[str, str], name: str, mark: Mark | None) -> ScanOptions:
        unknown = [key for key in table_options if key.startswith("scan.") and key not in _TABLE_OPTIONS]
        if unknown:
            raise ConfigError.unknown_key(unknown[0], _TABLE_OPTIONS, f"the options of {name}")

        def value(option: Option) -> object:
            own = table_option(option, table_options, name)
            return self._config.get(option) if own is None else own

        marked = mark.parallelism if mark else None
        parallelism = marked if marked is not None else value(SCAN_PARALLELISM)
        infer_max = value(SCAN_INFER_MAX)
        if parallelism is not None and not isinstance(parallelism, int):
            raise SourceError.bad_parallelism(parallelism, name)
        return ScanOptions(
            parallelism=parallelism,
            infer=value(SCAN_INFER_ENABLED) is True,
            infer_max=infer_max if isinstance(infer_max, int) else None,
        )
