"""Tables of the Hive metastore that Spark reads through Hive's own serialisers (``HiveTableRelation``)."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark.filesystem import Folder
from penstock.spark.jobs import active_session
from penstock.spark.jvm import children, class_name, items, lowered, option, with_fields
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.planning import spark_plan, without_subqueries

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge
    from penstock.spark.plans import LogicalNode

_CATALOG = "org.apache.spark.sql.catalyst.catalog."


def is_hive_relation(leaf: LogicalNode) -> bool:
    """Whether a leaf is read through Hive's serialisers."""
    return leaf.name == "HiveTableRelation"


def skips_corrupt(bridge: Bridge) -> bool:
    """Whether a corrupt file of a Hive relation is no error, but ends the rows of its part (``HadoopRDD``)."""
    return bool(bridge.spark.sparkContext._jsc.sc().getConf().getBoolean("spark.files.ignoreCorruptFiles", False))


def is_hive_table(leaf: LogicalNode) -> bool:
    """Whether a leaf is a table that was made with Hive's syntax, whoever reads its files."""
    return is_hive_relation(leaf) or (leaf.files is not None and leaf.files.provider == "hive")


class HiveRelation:
    """A table, and the partitions of it that a scan reads.

    Parameters
    ----------
    leaf
        The ``HiveTableRelation``.
    scan
        The plan of the relation with the filters right above it, dynamic ones among them.
    """

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
        """The table's properties, by their names in small letters."""
        return lowered(self._table.properties())

    @cached_property
    def _partitions(self) -> list[Any] | None:
        """The partitions that are read, by the metastore; None of a table without any."""
        if not self._table.partitionColumnNames().size():
            return None
        state = self._bridge.session._handle.sessionState()
        utils = self._bridge.find(_CATALOG + "ExternalCatalogUtils")
        known = option(self._leaf._handle.prunedPartitions())
        filters = self._bridge.seq(self._partition_filters())
        if known is not None and filters.isEmpty():
            return items(known)
        return items(utils.listPartitionsByFilter(state.conf(), state.catalog(), self._table, filters))

    def _partition_filters(self) -> list[Any]:
        todo = [spark_plan(self._bridge.session, self._scan)]
        while todo:
            node = todo.pop()
            if class_name(node) == "HiveTableScanExec":
                return without_subqueries(self._bridge.session, items(node.partitionPruningPred()))
            todo += children(node)
        return []

    @cached_property
    def sizes(self) -> list[int]:
        """The bytes of each partition, or of the table: what the metastore knows, else what the files hold."""
        if self._partitions is None:
            return [self._size(self._table.stats(), self._table.properties(), self._table.storage())]
        return [self._size(one.stats(), one.parameters(), one.storage()) for one in self._partitions]

    def _size(self, statistics: Any, parameters: Any, storage: Any) -> int:
        if statistics.isDefined():
            return int(str(statistics.get().sizeInBytes()))
        known = option(parameters.get("totalSize"))
        if known is not None and str(known).isdigit() and int(known):
            return int(known)
        folder = Folder(self._bridge, str(storage.locationUri().get().toString()))
        return sum(size for _, size in folder.files_below()) if folder.exists() else 0

    @cached_property
    def leaf(self) -> LogicalPlan:
        """The relation less the partitions that are ruled out."""
        if self._partitions is None:
            return self._leaf
        left = self._bridge.some(self._bridge.seq(self._partitions))
        return LogicalPlan(self._bridge, with_fields(self._bridge, self._leaf._handle, prunedPartitions=left))

    @cached_property
    def tasks(self) -> int:
        """How many tasks Spark makes of it; files are listed for that, and none is opened."""
        with active_session(self._bridge.session):
            plan = spark_plan(self._bridge.session, self.leaf)
            return int(plan.execute().getNumPartitions())
