"""Scans of sources that build their own DataFrame while the job runs."""

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
from penstock.connectors.splits import (
    COARSE,
    OPEN_COST,
    choose_split_count,
    count_splits,
    fewer_splits_reason,
    split_size_for,
)
from penstock.spark import predicates
from penstock.spark.files import split_settings
from penstock.spark.provided import ProvidedPlan
from penstock.units import show_bytes, show_count

if TYPE_CHECKING:
    from penstock.spark.handles import Session
    from penstock.spark.jvm import Bridge
    from penstock.spark.logical_plan import LogicalPlan


class ProvidedScan(Scan):
    """The scan of a `DataFrameScanProvider`.

    Parameters
    ----------
    bridge
        The session.
    provider
        The source.
    leaf
        The leaf of Spark's plan that represents the source.
    scan
        The leaf with the filters directly above it.
    cores
        How many tasks run at a time.
    volume
        The target bytes per task.
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
        self._predicates = tuple(_predicate(condition) for condition in predicates.conditions_of(scan))
        self._volume = volume
        self._built: tuple[int, ProvidedPlan] | None = None
        self._reason = ""

    @property
    def reason(self) -> str:
        """The basis of the inferred parallelism, a clause."""
        return self._reason

    @property
    def uses_predicates(self) -> bool:
        """Whether the source skips data that predicates exclude."""
        return self._provider.uses_predicates

    @property
    def size_in_bytes(self) -> int | None:
        """The estimated bytes of its files; None before they are listed, and if it does not read files."""
        listing = self._built[1].listing if self._built else None
        return None if listing is None else int(sum(listing.sizes) * listing.fraction)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the source's own inference if it has any, else the number of splits of its files."""
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
        files = f"{show_count(len(sizes), 'file')} of {show_bytes(sum(plan.listing.sizes))}"
        self._reason = files + (f", {plan.listing.fraction:.0%} of each row read" if plan.listing.fraction < 1 else "")
        fine = count_splits(sizes, plan.listing.splittable, self._volume, OPEN_COST)
        coarse = count_splits(sizes, plan.listing.splittable, COARSE * self._volume, OPEN_COST)
        fewer = fewer_splits_reason(fine, coarse, self._cores)
        self._reason += f", {fewer}" if fewer else ""
        return max(1, min(choose_split_count(fine, coarse, self._cores), bound))

    def with_filters(self, plan: LogicalPlan) -> ProvidedScan:
        """Return the scan with additional filters on its rows."""
        return ProvidedScan(self._bridge, self._provider, self._leaf, plan, self._cores, self._volume)

    def divide(self, parallelism: int) -> int:
        """Build the scan for at most `parallelism` tasks; return the number of its tasks."""
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
        """Return the leaf that reads the scan."""
        del session
        assert self._built is not None
        return self._built[1].as_leaf(self._leaf.output)

    def _build(self, parallelism: int) -> ProvidedPlan:
        """Return the plan of the scan. A scan of files is built once, as it does not depend on the parallelism."""
        if self._built is None or (self._built[0] != parallelism and self._built[1].listing is None):
            context = ScanContext(parallelism, self._volume, self._columns, self._predicates)
            df = self._provider.produce_data_frame(self._bridge.spark, context)
            self._built = parallelism, ProvidedPlan(self._bridge, df)
        return self._built[1]


def _predicate(plain: predicates.PlainCondition) -> Predicate:
    if plain[0] in {"and", "or"}:
        return Predicate(plain[0], parts=tuple(map(_predicate, plain[1])))
    return Predicate(*plain)
