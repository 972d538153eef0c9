"""A source that builds its scan while the job runs, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.connectors.base import (
    DataFrameScanProvider,
    DynamicParallelismInference,
    ParallelismInferenceContext,
    ScanContext,
)
from penstock.connectors.predicates import Predicate
from penstock.connectors.scan import Scan
from penstock.connectors.splits import COARSE, OPEN_COST, count_splits, split_size_for, why_not_more, worth_opening
from penstock.spark import predicates
from penstock.spark.files import split_settings
from penstock.spark.provided import ProvidedPlan
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


class ProvidedScan(Scan):
    """A scan of a `DataFrameScanProvider`.

    Parameters
    ----------
    bridge
        The session.
    provider
        The source.
    leaf
        The leaf of Spark's plan that stands for it.
    scan
        The leaf with the filters right above it.
    cores
        How many tasks run at a time.
    volume
        The bytes a task should read.
    """

    def __init__(
        self,
        bridge: Bridge,
        provider: DataFrameScanProvider,
        leaf: LogicalPlan,
        scan: LogicalPlan,
        cores: int,
        volume: int,
    ) -> None:
        self._bridge = bridge
        self._provider = provider
        self._leaf = leaf
        self._cores = cores
        self._columns = predicates.columns_of(scan, leaf)
        self._predicates = tuple(_predicate(one) for one in predicates.conditions_of(scan))
        self._volume = volume
        self._built: tuple[int, ProvidedPlan] | None = None
        self._reason = ""

    @property
    def reason(self) -> str:
        """What the number was inferred from, half a sentence."""
        return self._reason

    @property
    def uses_predicates(self) -> bool:
        """Whether the source leaves out data that conditions rule out."""
        return self._provider.uses_predicates

    @property
    def size_in_bytes(self) -> int | None:
        """About how many bytes it gives: those of its files, None before they are listed, and of other scans."""
        listing = self._built[1].listing if self._built else None
        return None if listing is None else int(sum(listing.sizes) * listing.fraction)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Ask the source, or count the splits of the files it would read."""
        bound = context.parallelism_inference_upper_bound
        if isinstance(self._provider, DynamicParallelismInference):
            context = replace(context, columns=self._columns, predicates=self._predicates)
            number = self._provider.infer_parallelism(context)
            self._reason = str(getattr(self._provider, "reason", ""))
            return number
        plan = self._build(bound)
        if plan.listing is None:
            self._reason = "the tasks of its own DataFrame"
            return plan.partitions
        sizes = [int(size * plan.listing.fraction) for size in plan.listing.sizes]
        found = f"{show_count(len(sizes), 'file')} of {show_bytes(sum(plan.listing.sizes))}"
        self._reason = found + (f", {plan.listing.fraction:.0%} of each row read" if plan.listing.fraction < 1 else "")
        fine = count_splits(sizes, plan.listing.splittable, self._volume, OPEN_COST)
        coarse = count_splits(sizes, plan.listing.splittable, COARSE * self._volume, OPEN_COST)
        fewer = why_not_more(fine, coarse, self._cores)
        self._reason += f", {fewer}" if fewer else ""
        return max(1, min(worth_opening(fine, coarse, self._cores), bound))

    def with_filters(self, plan: LogicalPlan) -> ProvidedScan:
        """Return the scan as it is once its rows are filtered further."""
        return ProvidedScan(self._bridge, self._provider, self._leaf, plan, self._cores, self._volume)

    def cut(self, parallelism: int) -> int:
        """Build the scan for at most so many tasks; return how many it has."""
        plan = self._build(parallelism)
        listing = plan.listing
        if listing is None:
            return plan.partitions
        if not sum(listing.sizes):
            return max(plan.partitions, 1)
        split = split_size_for(listing.sizes, listing.splittable, parallelism, OPEN_COST)
        plan.set_split_size(split_settings(split, OPEN_COST))
        return count_splits(listing.sizes, listing.splittable, split, OPEN_COST)

    def leaf(self, session: Session | None = None) -> LogicalPlan:
        """Return the scan as the plan's leaf."""
        del session
        assert self._built is not None
        return self._built[1].as_leaf(self._leaf.output)

    def _build(self, parallelism: int) -> ProvidedPlan:
        """Return the scan; files are the same for every parallelism, and are listed once."""
        if self._built is None or (self._built[0] != parallelism and self._built[1].listing is None):
            context = ScanContext(parallelism, self._volume, self._columns, self._predicates)
            df = self._provider.produce_data_frame(self._bridge.spark, context)
            self._built = parallelism, ProvidedPlan(self._bridge, df)
        return self._built[1]


def _predicate(plain: predicates.PlainCondition) -> Predicate:
    if plain[0] in {"and", "or"}:
        return Predicate(plain[0], parts=tuple(map(_predicate, plain[1])))
    return Predicate(*plain)
