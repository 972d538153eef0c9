"""Tables of the Hive metastore that Spark reads through Hive's own serialisers (``HiveTableRelation``)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark.bridge.jvm import Bridge, items, lowercase_keys, option, with_fields
from penstock.spark.io.filesystem import Folder
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.planning import partition_filters, spark_plan
from penstock.spark.run.jobs import active_session

if TYPE_CHECKING:
    from penstock.spark.plans.nodes import LogicalNode


def is_hive_relation(leaf: LogicalNode) -> bool:
    """Whether Spark reads a leaf through Hive's serialisers."""
    return leaf.name == "HiveTableRelation"


def skips_corrupt(bridge: Bridge) -> bool:
    """Whether a corrupt file of a Hive relation only ends the rows of its split, without an error (``HadoopRDD``)."""
    return bool(bridge.spark.sparkContext._jsc.sc().getConf().getBoolean("spark.files.ignoreCorruptFiles", False))


def is_hive_table(leaf: LogicalNode) -> bool:
    """Whether a leaf is a table created with Hive's syntax, regardless of the reader of its files."""
    return is_hive_relation(leaf) or (leaf.files is not None and leaf.files.provider == "hive")


class HiveRelation:
    """A table and the partitions that a scan, the relation with all filters directly above it, reads."""

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
        state = self._bridge.session._handle.sessionState()
        utils = self._bridge.find("org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils")
        pruned = option(self._leaf._handle.prunedPartitions())
        filters = self._bridge.seq(partition_filters(self._bridge.session, self._scan, "HiveTableScanExec"))
        if pruned is not None and filters.isEmpty():
            return items(pruned)
        return items(utils.listPartitionsByFilter(state.conf(), state.catalog(), self._table, filters))

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each partition, or of the table, from the metastore, else from the files."""
        if self._partitions is None:
            return [self._size(self._table.stats(), self._table.properties(), self._table.storage())]
        return [self._size(entry.stats(), entry.parameters(), entry.storage()) for entry in self._partitions]

    def _size(self, statistics: Any, parameters: Any, storage: Any) -> int:
        if statistics.isDefined():
            return int(str(statistics.get().sizeInBytes()))
        total_size = option(parameters.get("totalSize"))
        if total_size is not None and str(total_size).isdigit() and int(total_size):
            return int(total_size)
        folder = Folder(self._bridge, str(storage.locationUri().get().toString()))
        return sum(size for _, size in folder.files_below()) if folder.exists() else 0

    @cached_property
    def leaf(self) -> LogicalPlan:
        """The relation without the pruned partitions."""
        if self._partitions is None:
            return self._leaf
        retained = self._bridge.some(self._bridge.seq(self._partitions))
        return LogicalPlan(self._bridge, with_fields(self._bridge, self._leaf._handle, prunedPartitions=retained))

    @cached_property
    def tasks(self) -> int:
        """The number of tasks of Spark's scan; files are listed for it, but not opened."""
        with active_session(self._bridge.session):
            plan = spark_plan(self._bridge.session, self.leaf)
            return int(plan.execute().getNumPartitions())
