"""Plans that a source provides while a job runs (`ProvidedScan`), as replacements of leaves of the job's plan."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from penstock.spark.bridge.jvm import EXPRESSIONS, Bridge, items
from penstock.spark.bridge.settings import clone_with
from penstock.spark.io import files
from penstock.spark.plans import catalyst, fragment
from penstock.spark.plans.expressions import Attributes, alias
from penstock.spark.plans.nodes import read_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.io.files import FileListing
    from penstock.spark.plans.logical_plan import LogicalPlan


class ProvidedPlan:
    """The plan of a DataFrame that replaces a leaf. It may lack columns of the leaf that the query does not use."""

    def __init__(self, bridge: Bridge, df: DataFrame) -> None:
        self._bridge = bridge
        self._df = df
        self._plan = read_plan(catalyst.optimized_plan(bridge, df))
        self._split_plan: LogicalPlan = self._plan
        leaves = self._plan.leaves()
        self._file_leaf = leaves[0] if len(leaves) == 1 and files.is_split_by_size(leaves[0]) else None

    @cached_property
    def listing(self) -> FileListing | None:
        """The files that the plan reads, None if it is not a scan of files that Spark splits by size."""
        return None if self._file_leaf is None else files.list_files(self._file_leaf, self._plan)

    @cached_property
    def partitions(self) -> int:
        """The number of tasks of the plan."""
        return int(self._df._jdf.queryExecution().toRdd().getNumPartitions())

    def set_split_size(self, settings: dict[str, str]) -> None:
        """Split the files with Spark settings from `files.split_settings`; only for a plan with a `listing`."""
        assert self._file_leaf is not None
        leaf = files.with_split_size(self._file_leaf, clone_with(self._bridge.session, settings))
        self._split_plan = fragment.rebuild(self._plan, {self._file_leaf: leaf})

    def as_leaf(self, output: Attributes) -> LogicalPlan:
        """Return the plan with `output`, the columns of the leaf; columns that the plan lacks are null."""
        bridge = self._bridge
        columns = {str(column.name()): column for column in items(self._split_plan.output._handle)}
        literal = bridge.companion(EXPRESSIONS + "Literal")
        named = []
        for target in items(output._handle):
            column = columns.get(str(target.name()))
            value = literal.create(None, target.dataType()) if column is None else column
            named.append(alias(bridge, value, target.name(), target.exprId(), target.qualifier()))
        return self._split_plan.projected(Attributes(bridge, bridge.seq(named)))
