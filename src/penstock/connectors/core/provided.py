"""Scans of sources that build their own DataFrame while the job runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.connectors.core.base import (
    DataFrameScanProvider,
    DynamicParallelismInference,
    ParallelismInferenceContext,
    ScanContext,
)
from penstock.connectors.core.predicates import Predicate
from penstock.connectors.core.scan import Scan
from penstock.connectors.core.splits import OPEN_COST, choose_file_splits, count_splits, split_size_for
from penstock.spark.io.files import split_settings
from penstock.spark.plans import predicates
from penstock.spark.run.provided_plan import ProvidedPlan

if TYPE_CHECKING:
    from penstock.spark.bridge.handles import Session
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.plans.logical_plan import LogicalPlan


@dataclass(eq=False)
class ProvidedScan(Scan):
    """The scan of a `DataFrameScanProvider`.

    `_leaf` is the leaf of Spark's plan that represents the source, `_filtered` the leaf with the filters directly above
    it, `_cores` the number of tasks that run concurrently, and `_volume` the target bytes per task. `_built` is the
    requested parallelism and the plan that was built for it.
    """

    _bridge: Bridge
    _provider: DataFrameScanProvider
    _leaf: LogicalPlan
    _filtered: LogicalPlan
    _cores: int
    _volume: int
    reason: str = field(default="", init=False)
    _built: tuple[int, ProvidedPlan] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._columns = predicates.used_columns(self._filtered, self._leaf)
        self._predicates = tuple(_predicate(condition) for condition in predicates.conditions_of(self._filtered))
        self.uses_predicates = self._provider.uses_predicates

    @property
    def size_in_bytes(self) -> int | None:
        """The estimated bytes to read from files; None before they are listed, or if the source does not read files."""
        listing = self._built[1].listing if self._built else None
        return None if listing is None else int(sum(listing.sizes) * listing.fraction)

    def infer_parallelism(self, context: ParallelismInferenceContext) -> int:
        """Return the number of tasks that the source infers, else that of its file splits or Spark partitions."""
        bound = context.parallelism_inference_upper_bound
        if isinstance(self._provider, DynamicParallelismInference):
            context = replace(context, columns=self._columns, predicates=self._predicates)
            number = self._provider.infer_parallelism(context)
            self.reason = str(getattr(self._provider, "reason", ""))
            return number
        plan = self._build(bound)
        listing = plan.listing
        if listing is None:
            self.reason = "the tasks of its own DataFrame"
            return plan.partitions
        sizes = [int(size * listing.fraction) for size in listing.sizes]
        self.reason = f"{show_count(len(sizes), 'file')} of {show_bytes(sum(listing.sizes))}"
        if listing.fraction < 1:
            self.reason += f", {listing.fraction:.0%} of each row read"
        number, reason_for_fewer = choose_file_splits(sizes, listing.splittable, self._volume, self._cores)
        self.reason += f", {reason_for_fewer}" if reason_for_fewer else ""
        return max(1, min(number, bound))

    def with_filters(self, plan: LogicalPlan) -> ProvidedScan:
        """Return the scan with additional filters; `plan` is the leaf with all filters above it."""
        return replace(self, _filtered=plan)

    def divide(self, parallelism: int) -> int:
        """Build the scan for at most `parallelism` tasks; return the number of its tasks."""
        plan = self._build(parallelism)
        listing = plan.listing
        if listing is None:
            return plan.partitions
        if not sum(listing.sizes):  # empty files cannot be split
            return max(plan.partitions, 1)
        split_bytes = split_size_for(listing.sizes, listing.splittable, parallelism)
        plan.set_split_size(split_settings(split_bytes, OPEN_COST))
        return count_splits(listing.sizes, listing.splittable, split_bytes)

    def leaf(self, session: Session | None = None) -> LogicalPlan:  # noqa: ARG002
        """Return the leaf that reads the DataFrame of the source, which `infer_parallelism` or `divide` has built."""
        assert self._built is not None
        return self._built[1].as_leaf(self._leaf.output)

    def _build(self, parallelism: int) -> ProvidedPlan:
        """Return the plan of the scan. A scan of files is built once: it does not depend on the parallelism."""
        if self._built is None or (self._built[0] != parallelism and self._built[1].listing is None):
            context = ScanContext(parallelism, self._volume, self._columns, self._predicates)
            df = self._provider.produce_data_frame(self._bridge.spark, context)
            self._built = parallelism, ProvidedPlan(self._bridge, df)
        return self._built[1]


def _predicate(condition: predicates.PlainCondition) -> Predicate:
    if condition[0] in {"and", "or"}:
        return Predicate(condition[0], parts=tuple(map(_predicate, condition[1])))
    return Predicate(*condition)
