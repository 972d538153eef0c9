"""What Spark alone would have done instead of a decision, as far as its settings and the recorded figures show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.units import show_bytes, show_count
from penstock.config.option import parse_size
from penstock.decisions.log import DecisionKind

if TYPE_CHECKING:
    from penstock.decisions.record import DecisionRecord

_ADAPTIVE, _COALESCE = "spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions."
_SKEW, _BLOOM = "spark.sql.adaptive.skewJoin.", "spark.sql.optimizer.runtime.bloomFilter."
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_BROADCAST, _ADAPTIVE_BROADCAST = (
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.adaptive.autoBroadcastJoinThreshold",
)
_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_SORT_MERGE, _LOCAL_MAP = (
    "spark.sql.join.preferSortMergeJoin",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold",
)
_SPLIT, _OPEN_COST = "spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"
_MIN_SPLITS, _LEAF_TASKS = "spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism"
_REUSE = "spark.sql.exchange.reuse"
SETTING_NAMES = (
    *(_ADAPTIVE, f"{_COALESCE}enabled", f"{_COALESCE}parallelismFirst", f"{_COALESCE}minPartitionSize"),
    *(f"{_COALESCE}minPartitionNum", f"{_COALESCE}initialPartitionNum", _SHUFFLE_PARTITIONS, _ADVISORY),
    *(_BROADCAST, _ADAPTIVE_BROADCAST, _SORT_MERGE, _LOCAL_MAP, _SPLIT, _OPEN_COST, _MIN_SPLITS, _LEAF_TASKS, _REUSE),
    *(f"{_SKEW}enabled", f"{_SKEW}skewedPartitionFactor", f"{_SKEW}skewedPartitionThresholdInBytes"),
    *(f"{_BLOOM}enabled", f"{_BLOOM}applicationSideScanSizeThreshold"),
)
"""The settings that a job records, so that its decisions can be compared with those of Spark."""
FILES_FIGURE, FILE_BYTES_FIGURE, SPLITTABLE_FIGURE = "files", "file bytes", "splittable files"
"""Figures of a decision about a source of files: their number, their bytes, and how many of them can be split."""
SHUFFLED_FIGURE = "bytes shuffled"
"""Figure of a decision about a vertex that reads a single shuffle, whose partitions Spark's settings determine."""
_SIDES = {"left", "right"}
"""What a decision chooses that broadcasts a side or waits for it; a decision against it is worded differently."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of the user's session, with Spark's defaults, and the number of tasks that can run at a time.

    >>> settings = SparkSettings({"spark.sql.shuffle.partitions": "200"}, cores=2)
    >>> settings.number("spark.sql.shuffle.partitions", 0), settings.is_on("spark.sql.adaptive.enabled")
    (200, False)
    """

    values: Mapping[str, str]
    cores: int

    def is_on(self, name: str) -> bool:
        """Whether a setting is true; False if it was not recorded."""
        return self.values.get(name, "").strip().lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return a number, or a size in bytes; `default` if it was not recorded or is no number."""
        try:
            return parse_size(self.values[name])
        except (KeyError, ValueError):
            return default

    @property
    def coalesces(self) -> bool:
        """Whether Spark combines small shuffle partitions while a query runs."""
        return self.is_on(_ADAPTIVE) and self.is_on(f"{_COALESCE}enabled")

    @property
    def shuffle_partitions(self) -> int:
        """The number of partitions in which Spark writes a shuffle."""
        number = self.number(_SHUFFLE_PARTITIONS, 200)
        return self.number(f"{_COALESCE}initialPartitionNum", number) if self.coalesces else number


@dataclass(frozen=True, slots=True)
class SparkAlternative:
    """What Spark alone does at the location of a decision; an estimate if it depends on sizes that only a run shows.

    >>> print(SparkAlternative("200 tasks", is_estimate=True))
    Spark alone (estimate): 200 tasks
    """

    text: str
    is_estimate: bool = False

    def __str__(self) -> str:
        return f"Spark alone{' (estimate)' if self.is_estimate else ''}: {self.text}"


def spark_alternative(decision: DecisionRecord, settings: SparkSettings | None) -> SparkAlternative | None:
    """Return what Spark alone would have done; None if it is unknown, or if the decision was not carried out."""
    rule = _RULES.get(decision.kind)
    return None if rule is None or settings is None or decision.instead else rule(decision, settings)


def coalesced_tasks(size: int, settings: SparkSettings) -> int:
    """Return the number of tasks that read a shuffle of `size` evenly distributed bytes in Spark.

    The formula is that of ``CoalesceShufflePartitions`` and ``ShufflePartitionsUtil``.

    >>> coalesced_tasks(96 << 20, SparkSettings({"spark.sql.shuffle.partitions": "200"}, cores=2))
    200
    """
    partitions = settings.shuffle_partitions
    if not settings.coalesces:
        return partitions
    minimum = settings.cores if settings.is_on(f"{_COALESCE}parallelismFirst") else 1
    minimum = settings.number(f"{_COALESCE}minPartitionNum", minimum)
    target = min(math.ceil(size / max(minimum, 1)), settings.number(_ADVISORY, 64 << 20))
    target = max(target, settings.number(f"{_COALESCE}minPartitionSize", 1 << 20))
    return math.ceil(partitions / max(target * partitions // max(size, 1), 1))


def file_tasks(files: int, size: int, splittable: int, settings: SparkSettings) -> int:
    """Return the number of tasks that read files of `size` bytes altogether in Spark: exact for one file, else about.

    The formula is that of ``FilePartition.maxSplitBytes``.
    """
    open_cost = settings.number(_OPEN_COST, 4 << 20)
    cores = settings.number(_MIN_SPLITS, settings.number(_LEAF_TASKS, settings.cores))
    total = size + files * open_cost
    limit = max(min(settings.number(_SPLIT, 128 << 20), max(open_cost, total // max(cores, 1))), 1)
    tasks = math.ceil((size if files == 1 else total) / limit)
    return tasks if splittable else min(tasks, files)


def _of_exchange(decision: DecisionRecord, settings: SparkSettings) -> SparkAlternative | None:
    size = decision.values["figures"].get(SHUFFLED_FIGURE)
    if size is None or not decision.chosen.isdecimal():  # Spark decided
        return None
    partitions = show_count(settings.shuffle_partitions, "shuffle partition")
    if not settings.coalesces:
        return SparkAlternative(f"{partitions}, each read by a task ({_SHUFFLE_PARTITIONS})")
    tasks = show_count(coalesced_tasks(size, settings), "task")
    return SparkAlternative(
        f"{partitions}, which AQE coalesces to about {tasks} if {show_bytes(size)} are shuffled", is_estimate=True
    )


def _of_subpartitions(_: DecisionRecord, settings: SparkSettings) -> SparkAlternative:
    return SparkAlternative(f"{show_count(settings.shuffle_partitions, 'partition')} if rows are shuffled")


def _of_source(decision: DecisionRecord, settings: SparkSettings) -> SparkAlternative | None:
    figures = decision.values["figures"]
    if not figures.get(FILES_FIGURE):
        return None
    files, size = figures[FILES_FIGURE], figures[FILE_BYTES_FIGURE]
    tasks = show_count(file_tasks(files, size, figures.get(SPLITTABLE_FIGURE, files), settings), "task")
    about = "about " if files > 1 else ""
    limit = show_bytes(settings.number(_SPLIT, 128 << 20))
    return SparkAlternative(
        f"{about}{tasks}, as it divides {show_count(files, 'file')} of {show_bytes(size)} among "
        f"{show_count(settings.cores, 'core')}, at most {limit} each ({_SPLIT})",
        is_estimate=True,
    )


def _of_broadcast(decision: DecisionRecord, settings: SparkSettings) -> SparkAlternative | None:
    if decision.chosen not in _SIDES:
        return None
    if decision.option is None:
        return SparkAlternative("the same broadcast, as the join hint asks for it")
    if decision.option not in {_BROADCAST, _ADAPTIVE_BROADCAST}:
        return None
    if "limit" in decision.values["figures"]:  # decided when the query was planned
        return SparkAlternative("the same broadcast, by the same statistics")
    text = "it shuffles both sides, unless its statistics allow a broadcast when it plans"
    if settings.is_on(_ADAPTIVE):
        limit = show_bytes(settings.number(_ADAPTIVE_BROADCAST, settings.number(_BROADCAST, 10 << 20)))
        text += f"; AQE turns the join into a broadcast join only after it has measured a shuffled side below {limit}"
    return SparkAlternative(text, is_estimate=True)


def _of_join_algorithm(_: DecisionRecord, settings: SparkSettings) -> SparkAlternative | None:
    if not settings.is_on(_SORT_MERGE):
        return None
    if settings.is_on(_ADAPTIVE) and (limit := settings.number(_LOCAL_MAP, 0)) > 0:
        text = f"a sort-merge join, or a hash join if no partition has more than {show_bytes(limit)} ({_LOCAL_MAP})"
        return SparkAlternative(text, is_estimate=True)
    return SparkAlternative(f"a sort-merge join ({_SORT_MERGE})")


def _of_join_order(_: DecisionRecord, __: SparkSettings) -> SparkAlternative:
    return SparkAlternative("the order of its optimized plan, which it does not change while the query runs")


def _of_skew(decision: DecisionRecord, settings: SparkSettings) -> SparkAlternative | None:
    figures = decision.values["figures"]
    largest, median = figures.get("largest"), figures.get("median")
    if largest is None:
        return None
    if median is None:
        return SparkAlternative("no split, as AQE splits only partitions of joins")
    if not (settings.is_on(_ADAPTIVE) and settings.is_on(f"{_SKEW}enabled")):
        return SparkAlternative(f"no split, as {_SKEW}enabled or {_ADAPTIVE} is off")
    factor = float(settings.values.get(f"{_SKEW}skewedPartitionFactor", "5"))
    limit = max(settings.number(f"{_SKEW}skewedPartitionThresholdInBytes", 256 << 20), round(factor * median))
    action = "AQE splits it, too, unless that adds a shuffle" if largest > limit else "AQE does not split it"
    relation = "above" if largest > limit else "not above"
    return SparkAlternative(f"{action}, as {show_bytes(largest)} is {relation} {show_bytes(limit)}", is_estimate=True)


def _of_filter(_: DecisionRecord, settings: SparkSettings) -> SparkAlternative:
    text = "no filter by these keys, unless they are partition columns"
    if settings.is_on(f"{_BLOOM}enabled"):
        size = show_bytes(settings.number(f"{_BLOOM}applicationSideScanSizeThreshold", 10 << 30))
        text += f" or the filtered side scans more than {size}"
    return SparkAlternative(text, is_estimate=True)


def _of_sharing(decision: DecisionRecord, settings: SparkSettings) -> SparkAlternative | None:
    if decision.chosen != "run once":
        return None
    reuse = ", except for equal shuffles and broadcasts of a query" if settings.is_on(_REUSE) else ""
    return SparkAlternative(f"they are computed for each reader{reuse}", is_estimate=bool(reuse))


def _of_removed_exchange(_: DecisionRecord, settings: SparkSettings) -> SparkAlternative:
    partitions = show_count(settings.shuffle_partitions, "partition")
    coalesced = ", which AQE may coalesce" if settings.coalesces else ""
    return SparkAlternative(f"a shuffle into {partitions}{coalesced}")


def _of_build_side_first(decision: DecisionRecord, _: SparkSettings) -> SparkAlternative | None:
    return SparkAlternative("it reads both sides at the same time") if decision.chosen in _SIDES else None


def _of_early_aggregation(_: DecisionRecord, __: SparkSettings) -> SparkAlternative:
    return SparkAlternative("it aggregates where the query does")


_RULES: Mapping[str, Callable[[DecisionRecord, SparkSettings], SparkAlternative | None]] = {
    DecisionKind.VERTEX_PARALLELISM: _of_exchange,
    DecisionKind.SUBPARTITIONS: _of_subpartitions,
    DecisionKind.SOURCE_PARALLELISM: _of_source,
    DecisionKind.BROADCAST: _of_broadcast,
    DecisionKind.JOIN_ALGORITHM: _of_join_algorithm,
    DecisionKind.JOIN_ORDER: _of_join_order,
    DecisionKind.SKEW: _of_skew,
    DecisionKind.DYNAMIC_FILTER: _of_filter,
    DecisionKind.SHARING: _of_sharing,
    DecisionKind.EXCHANGE: _of_removed_exchange,
    DecisionKind.BUILD_SIDE_FIRST: _of_build_side_first,
    DecisionKind.EARLY_AGGREGATION: _of_early_aggregation,
}
