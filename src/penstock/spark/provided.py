"""Scans that a source builds while its job runs, in place of a leaf of the plan."""

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
    """The plan of a DataFrame that takes the place of a leaf.

    Parameters
    ----------
    bridge
        The session.
    df
        The rows; a column of the leaf that it does not have is one that nobody reads.
    """

    def __init__(self, bridge: Bridge, df: DataFrame) -> None:
        self._bridge = bridge
        self._df = df
        self._plan = read_plan(catalyst.optimized_plan(bridge, df))
        self._cut: LogicalPlan = self._plan
        leaves = self._plan.leaves()
        self._file_leaf = leaves[0] if len(leaves) == 1 and files.is_cut_by_size(leaves[0]) else None

    @cached_property
    def listing(self) -> FileListing | None:
        """The files it reads, None if it is not a scan of files."""
        if self._file_leaf is None:
            return None
        return files.list_files(self._file_leaf, self._plan)

    @cached_property
    def partitions(self) -> int:
        """How many tasks read it."""
        return int(self._df._jdf.queryExecution().toRdd().getNumPartitions())

    def set_split_size(self, settings: dict[str, str]) -> None:
        """Let the files be cut by other settings."""
        assert self._file_leaf is not None
        session = self._bridge.session.clone()
        change_settings(session, settings)
        self._cut = fragment.rebuild(self._plan, {self._file_leaf: files.with_split_size(self._file_leaf, session)})

    def as_leaf(self, output: Attributes) -> LogicalPlan:
        """Return the plan with the columns of a leaf; those that it does not have are null."""
        bridge = self._bridge
        have = {str(one.name()): one for one in items(self._cut.output._handle)}
        literal = bridge.companion(EXPRESSIONS + "Literal")
        columns = []
        for wanted in items(output._handle):
            found = have.get(str(wanted.name()))
            value = literal.create(None, wanted.dataType()) if found is None else found
            empty = bridge.seq([])
            columns.append(
                bridge.find(EXPRESSIONS + "Alias")(
                    value, wanted.name(), wanted.exprId(), wanted.qualifier(), bridge.none, empty
                )
            )
        return self._cut.projected(Attributes(bridge, bridge.seq(columns)))
