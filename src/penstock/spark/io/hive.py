"""Tables of the Hive metastore that Spark reads with Hive's SerDes (``HiveTableRelation``)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, items, lowercase_keys, option, with_fields
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.planning import partition_filters, spark_plan
from penstock.spark.run.jobs import active_session

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


def is_hive_relation(leaf: LogicalNode) -> bool:
    """Whether Spark reads a leaf with Hive's SerDes."""
    return leaf.name == "HiveTableRelation"


def skips_corrupt_files(bridge: Bridge) -> bool:
    """Whether tasks silently skip the rest of a corrupt split of a Hive relation (``HadoopRDD``)."""
    return bool(bridge.spark.sparkContext._jsc.sc().getConf().getBoolean("spark.files.ignoreCorruptFiles", False))


def is_hive_table(leaf: LogicalNode) -> bool:
    """Whether a leaf is a table created with Hive's syntax; Spark reads it with Hive's SerDes or its own readers."""
    return is_hive_relation(leaf) or (leaf.files is not None and leaf.files.provider == "hive")


class HiveRelation:
    """A Hive table, and its partitions that `scan` reads; `scan` is `leaf` with all filters directly above it."""

    def __init__(self, leaf: LogicalPlan, scan: LogicalPlan) -> None:
        self._bridge = leaf._bridge
        self._leaf = leaf
        self._scan = scan
        self._table = leaf._handle.tableMeta()

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self._table.identifier().unquotedString())

    @property
    def options(self) -> dict[str, str]:
        """The table's properties, with lower-case keys."""
        return lowercase_keys(self._table.properties())

    @cached_property
    def _partitions(self) -> list[Any] | None:
        """The partitions to read, from the metastore; None for an unpartitioned table."""
        if not self._table.partitionColumnNames().size():
            return None
        session_state = self._bridge.session._handle.sessionState()
        utils = self._bridge.find("org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils")
        pruned = option(self._leaf._handle.prunedPartitions())
        filters = self._bridge.seq(partition_filters(self._bridge.session, self._scan, "HiveTableScanExec"))
        if pruned is not None and filters.isEmpty():
            return items(pruned)
        return items(utils.listPartitionsByFilter(session_state.conf(), session_state.catalog(), self._table, filters))

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each partition, or of an unpartitioned table, from the metastore or else from the files."""
        if self._partitions is None:
            return [self._size(self._table.stats(), self._table.properties(), self._table.storage())]
        return [self._size(entry.stats(), entry.parameters(), entry.storage()) for entry in self._partitions]

    def _size(self, statistics: Any, parameters: Any, storage: Any) -> int:
        if statistics.isDefined():
            return int(str(statistics.get().sizeInBytes()))
        total_size = option(parameters.get("totalSize"))
        if total_size is not None and str(total_size).isdigit() and int(total_size):
            return int(total_size)
        folder = HadoopPath(self._bridge, str(storage.locationUri().get().toString()))
        return sum(size for _, size in folder.files_below()) if folder.exists() else 0

    @cached_property
    def leaf(self) -> LogicalPlan:
        """The relation, restricted to the partitions to read."""
        if self._partitions is None:
            return self._leaf
        retained = self._bridge.some(self._bridge.seq(self._partitions))
        return LogicalPlan(self._bridge, with_fields(self._bridge, self._leaf._handle, prunedPartitions=retained))

    @cached_property
    def tasks(self) -> int:
        """The number of tasks of Spark's scan. Lists the files, but does not open them."""
        with active_session(self._bridge.session):
            plan = spark_plan(self._bridge.session, self.leaf)
            return int(plan.execute().getNumPartitions())
