"""Files that Spark cuts by size: any number of tasks can be had by choosing the size of a split."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from penstock.connectors.files import FileSource
from penstock.connectors.scan import Scan, Splitting
from penstock.connectors.splits import OPEN_COST, count_splits, split_size_for
from penstock.spark import files
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.spark.files import FileListing
    from penstock.spark.handles import Session
    from penstock.spark.logical_plan import LogicalPlan
    from penstock.spark.plans import LogicalNode


class FileScan(Scan):
    """A relation of files.

    Parameters
    ----------
    leaf
        The relation.
    plan
        The relation with the filters above it.
    cores
        How many tasks run at a time.

    Attributes
    ----------
    listing
        Lists the files that are left by the filters, once.
    """

    def __init__(self, leaf: LogicalNode, plan: LogicalPlan, cores: int) -> None:
        self._leaf = leaf
        self._cores = cores
        self._why_not_more = ""
        self.listing = cache(lambda: files.list_files(leaf, plan))

    @property
    def takes_any_number(self) -> bool:
        """True: files are cut by a size that can be chosen."""
        return True

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the files; of formats by column, only those of the columns that are read."""
        listing = self.listing()
        return int(sum(listing.sizes) * listing.fraction)

    @property
    def rows(self) -> int | None:
        """About how many rows they hold, by a footer; None where only reading them would tell."""
        return self.listing().rows()

    def asked(self, given: object | None) -> object:
        """Return the user's source, which gets to know the files if it is a `FileSource`."""
        if given is not None and not isinstance(given, FileSource):
            return given
        assert self._leaf.files is not None
        return (given or FileSource(self._leaf.files.name)).with_listing(self.listing, self._cores, self._note)

    def _note(self, why_not_more: str) -> None:
        self._why_not_more = why_not_more

    def cut(self, parallelism: int) -> int:
        """Return how many splits there are of the size that comes closest to so many."""
        listing = self.listing()
        return count_splits(listing.sizes, listing.splittable, _split_size(listing, parallelism), OPEN_COST)

    def split(self, parallelism: int, why: str) -> Splitting:
        """Choose the size of a split."""
        listing = self.listing()
        if not sum(listing.sizes):
            return Splitting(None, f"{why}, but the files are empty")
        possible = self.cut(parallelism)
        why = f"{why}, {self._why_not_more}" if self._why_not_more else why
        settings = files.split_settings(_split_size(listing, parallelism), OPEN_COST)
        found = f"{show_count(len(listing.sizes), 'file')} of {show_bytes(sum(listing.sizes))}"
        if listing.fraction < 1:
            found += f", {listing.fraction:.0%} of each row read"
        if possible != parallelism:
            return Splitting(possible, f"{why}, but {found} can be split into at most {possible}", settings)
        return Splitting(parallelism, f"{found}: {why}", settings)

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the relation; it takes the size of its splits from the session."""
        return self._leaf if session is None else files.with_split_size(self._leaf, session)

    def with_filters(self, plan: LogicalPlan) -> FileScan:
        """Return a scan of the files that are left by more filters."""
        return FileScan(self._leaf, plan, self._cores)


def _split_size(listing: FileListing, parallelism: int) -> int:
    return split_size_for(listing.sizes, listing.splittable, parallelism, OPEN_COST)
