"""Scans that a source builds while its job runs, as replacements of leaves of the plan."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from penstock.spark import catalyst, files, fragment
from penstock.spark.expressions import Attributes
from penstock.spark.jvm import EXPRESSIONS, items
from penstock.spark.plans import read_plan
from penstock.spark.settings import change_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.files import FileListing
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


class ProvidedPlan:
    """The plan of a DataFrame that replaces a leaf; columns of the leaf that the DataFrame lacks must be unused."""

    def __init__(self, bridge: Bridge, df: DataFrame) -> None:
        self._bridge = bridge
        self._df = df
        self._plan = read_plan(catalyst.optimized_plan(bridge, df))
        self._split_plan: LogicalPlan = self._plan
        leaves = self._plan.leaves()
        self._file_leaf = leaves[0] if len(leaves) == 1 and files.is_split_by_size(leaves[0]) else None

    @cached_property
    def listing(self) -> FileListing | None:
        """The files that it reads, None if it is not a file scan."""
        if self._file_leaf is None:
            return None
        return files.list_files(self._file_leaf, self._plan)

    @cached_property
    def partitions(self) -> int:
        """The number of tasks that read it."""
        return int(self._df._jdf.queryExecution().toRdd().getNumPartitions())

    def set_split_size(self, settings: dict[str, str]) -> None:
        """Split the files by other settings."""
        assert self._file_leaf is not None
        session = self._bridge.session.clone()
        change_settings(session, settings)
        self._split_plan = fragment.rebuild(
            self._plan, {self._file_leaf: files.with_split_size(self._file_leaf, session)}
        )

    def as_leaf(self, output: Attributes) -> LogicalPlan:
        """Return the plan with the columns of a leaf; columns that it lacks are null."""
        bridge = self._bridge
        columns = {str(column.name()): column for column in items(self._split_plan.output._handle)}
        literal = bridge.companion(EXPRESSIONS + "Literal")
        named = []
        for target in items(output._handle):
            column = columns.get(str(target.name()))
            value = literal.create(None, target.dataType()) if column is None else column
            empty = bridge.seq([])
            named.append(
                bridge.find(EXPRESSIONS + "Alias")(
                    value, target.name(), target.exprId(), target.qualifier(), bridge.none, empty
                )
            )
        return self._split_plan.projected(Attributes(bridge, bridge.seq(named)))
