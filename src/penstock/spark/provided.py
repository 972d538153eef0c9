"""Scans that a source builds while its job runs, in place of a leaf of the plan."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark import catalyst, files, fragment
from penstock.spark.jvm import EXPRESSIONS, LOGICAL, items
from penstock.spark.plans import read_plan
from penstock.spark.settings import change_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.files import FileListing
    from penstock.spark.jvm import Bridge


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
        self._plan = read_plan(bridge, catalyst.optimized_plan(df))
        self._handle = self._plan.handle
        leaves = self._plan.leaves()
        self._file_leaf = leaves[0] if len(leaves) == 1 and files.is_cut_by_size(leaves[0]) else None

    @cached_property
    def listing(self) -> FileListing | None:
        """The files it reads, None if it is not a scan of files."""
        if self._file_leaf is None:
            return None
        return files.list_files(self._bridge, self._bridge.session, self._file_leaf, self._plan.handle)

    @cached_property
    def partitions(self) -> int:
        """How many tasks read it."""
        return int(self._df._jdf.queryExecution().toRdd().getNumPartitions())

    def recut(self, settings: dict[str, str]) -> None:
        """Let the files be cut by other settings."""
        assert self._file_leaf is not None
        session = self._bridge.session.cloneSession()
        change_settings(self._bridge, session, settings)
        new = files.recut(self._bridge, self._file_leaf.handle, session)
        self._handle = fragment.rebuild(self._bridge, self._plan, {self._file_leaf: new})

    def as_leaf(self, output: Any) -> Any:
        """Return the plan with the attributes of a leaf; columns that it does not have are null."""
        bridge = self._bridge
        have = {str(one.name()): one for one in items(self._handle.output())}
        literal = bridge.companion(EXPRESSIONS + "Literal")
        columns = []
        for wanted in items(output):
            found = have.get(str(wanted.name()))
            value = literal.create(None, wanted.dataType()) if found is None else found
            empty = bridge.seq([])
            columns.append(
                bridge.find(EXPRESSIONS + "Alias")(
                    value, wanted.name(), wanted.exprId(), wanted.qualifier(), bridge.none, empty
                )
            )
        return bridge.find(LOGICAL + "Project")(bridge.seq(columns), self._handle)
