"""Scans of files that Spark splits by size; the split size is chosen for the requested number of tasks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.connectors.core.scan import Scan, Splitting
from penstock.connectors.core.splits import OPEN_COST, count_splits, split_size_for
from penstock.connectors.files.files import FileSource
from penstock.decisions.plain_spark import FILE_BYTES_FIGURE, FILES_FIGURE, SPLITTABLE_FIGURE
from penstock.spark.io import files

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.io.files import FileListing
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode


class FileScan(Scan):
    """The scan of a relation of files; `plan` is the relation with the filters above it.

    `cores` is the number of tasks that run concurrently. `listing()` lists the files after partition pruning, once.
    """

    allows_any_parallelism = True  # the split size can be chosen

    def __init__(self, leaf: LogicalNode, plan: LogicalPlan, cores: int) -> None:
        self._leaf = leaf
        self._cores = cores
        self._fewer_splits_reason = ""
        self.listing = cache(lambda: files.list_files(leaf, plan))

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the files; for columnar formats, only those of the columns that are read."""
        listing = self.listing()
        return int(sum(listing.sizes) * listing.fraction)

    @property
    def rows(self) -> int | None:
        """The row count, estimated from a footer; None if the files are not Parquet, or the footer is unreadable."""
        return self.listing().rows()

    @property
    def figures(self) -> dict[str, int]:
        """The number of files, their bytes, and how many of them can be split."""
        listing = self.listing()
        counts = {FILES_FIGURE: len(listing.sizes), SPLITTABLE_FIGURE: sum(listing.splittable)}
        return counts | {FILE_BYTES_FIGURE: sum(listing.sizes)}

    def parallelism_source(self, user_source: object | None) -> object:
        """Return the user's source or a new `FileSource`, to infer the parallelism; a `FileSource` gets the listing."""
        if user_source is not None and not isinstance(user_source, FileSource):
            return user_source
        assert self._leaf.files is not None
        source = user_source or FileSource(self._leaf.files.name)
        return source.with_listing(self.listing, self._cores, self._set_reason)

    def _set_reason(self, reason: str) -> None:
        self._fewer_splits_reason = reason

    def divide(self, parallelism: int) -> int:
        """Return the number of splits for the split size that gives at most `parallelism` tasks."""
        listing = self.listing()
        return count_splits(listing.sizes, listing.splittable, _split_size(listing, parallelism))

    def choose_splitting(self, parallelism: int, reason: str) -> Splitting:
        """Choose the split size for a requested number of tasks; `reason` explains this number."""
        listing = self.listing()
        if not sum(listing.sizes):
            return Splitting(None, f"{reason}, but the files are empty")
        possible = self.divide(parallelism)
        reason = f"{reason}, {self._fewer_splits_reason}" if self._fewer_splits_reason else reason
        settings = files.split_settings(_split_size(listing, parallelism), OPEN_COST)
        sizes = f"{show_count(len(listing.sizes), 'file')} of {show_bytes(sum(listing.sizes))}"
        if listing.fraction < 1:
            sizes += f", {listing.fraction:.0%} of each row read"
        if possible != parallelism:
            return Splitting(possible, f"{reason}, but {sizes} can be split into at most {possible}", settings)
        return Splitting(parallelism, f"{sizes}: {reason}", settings)

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the relation; the settings of the session determine its split size."""
        return self._leaf if session is None else files.with_split_size(self._leaf, session)

    def with_filters(self, plan: LogicalPlan) -> FileScan:
        """Return a scan of the files that remain after additional filters."""
        return FileScan(self._leaf, plan, self._cores)


def _split_size(listing: FileListing, parallelism: int) -> int:
    return split_size_for(listing.sizes, listing.splittable, parallelism)
