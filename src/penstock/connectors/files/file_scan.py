"""Scans of files that Spark splits by size; the split size is chosen for the requested number of tasks."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.connectors.core.scan import Scan, Splitting
from penstock.connectors.core.splits import OPEN_COST, count_splits, split_size_for
from penstock.connectors.files.files import FileSource
from penstock.spark.io import files

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.io.files import FileListing
    from penstock.spark.plans.logical_plan import LogicalPlan
    from penstock.spark.plans.nodes import LogicalNode


class FileScan(Scan):
    """The scan of a relation of files; `plan` is the relation with the filters above it.

    `listing` lists the files that remain after partition pruning; it is cached.
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
        """The row count estimated from a file footer; None if the format has no footer with a row count."""
        return self.listing().rows()

    def parallelism_source(self, user_source: object | None) -> object:
        """Return the user's source; a `FileSource` gets the listing of the files."""
        if user_source is not None and not isinstance(user_source, FileSource):
            return user_source
        assert self._leaf.files is not None
        return (user_source or FileSource(self._leaf.files.name)).with_listing(self.listing, self._cores, self._note)

    def _note(self, fewer_splits_reason: str) -> None:
        self._fewer_splits_reason = fewer_splits_reason

    def divide(self, parallelism: int) -> int:
        """Return the number of splits for the split size that gives at most `parallelism` tasks."""
        listing = self.listing()
        return count_splits(listing.sizes, listing.splittable, _split_size(listing, parallelism))

    def split(self, parallelism: int, reason: str) -> Splitting:
        """Choose the split size."""
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
        """Return the relation; its split size comes from the settings of the session."""
        return self._leaf if session is None else files.with_split_size(self._leaf, session)

    def with_filters(self, plan: LogicalPlan) -> FileScan:
        """Return a scan of the files that remain after additional filters."""
        return FileScan(self._leaf, plan, self._cores)


def _split_size(listing: FileListing, parallelism: int) -> int:
    return split_size_for(listing.sizes, listing.splittable, parallelism)
