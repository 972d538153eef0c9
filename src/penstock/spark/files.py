"""File scans: the files that a relation reads, and the settings that control how Spark splits them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from penstock.errors import first_line
from penstock.spark import answers
from penstock.spark.dataframes import with_settings
from penstock.spark.jvm import Bridge, children, class_name, items
from penstock.spark.logical_plan import LogicalPlan
from penstock.spark.parquet import estimate_rows
from penstock.spark.planning import spark_plan, without_subqueries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from penstock.spark.handles import Session
    from penstock.spark.plans import LogicalNode

_COLUMNAR = ("parquet", "orc")
_FORMATS = {
    "parquet": "parquet.ParquetFileFormat",
    "orc": "orc.OrcFileFormat",
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "text": "text.TextFileFormat",
}
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
EVERY_ROW = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Reader options of rows that are written elsewhere: unreadable files must raise an error, whatever the session's
settings for queries."""
_LEAST_LISTING_TASKS = 16
_TASKS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a relation after partition pruning.

    Parameters
    ----------
    format
        Spark's short name of the format, such as ``parquet``.
    name
        The table's name, or the first path.
    fraction
        The fraction of a row that is read; 1.0 for formats that are not columnar.
    rows
        Returns the estimated number of rows, None if only reading the files would tell.
    """

    sizes: tuple[int, ...]
    splittable: tuple[bool, ...]
    format: str
    name: str
    fraction: float = 1.0
    paths: tuple[str, ...] = field(default=(), repr=False)
    rows: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)


def is_split_by_size(leaf: LogicalNode) -> bool:
    """Whether a leaf is a file scan that Spark splits by size (a ``HadoopFsRelation`` without buckets)."""
    return leaf.files is not None and not leaf.files.bucketed


def list_files(leaf: LogicalNode, scan: LogicalPlan) -> FileListing:
    """Return the files that `scan`, a relation with filters above it, reads after partition pruning."""
    assert leaf.files is not None
    bridge = leaf._bridge
    filters = _partition_filters(bridge.session, scan) if leaf.partition_columns else []
    answer = bridge.helper("FileRelations").list(leaf, scan, bridge.seq(filters))
    listing = _Listing.of(answers.facts(answer))
    is_parquet = leaf.files.format == "parquet"
    sized = list(zip(listing.paths, listing.sizes, strict=True))
    return FileListing(
        sizes=listing.sizes,
        splittable=listing.splittable,
        format=leaf.files.format,
        name=leaf.files.name,
        fraction=listing.fraction if leaf.files.format in _COLUMNAR else 1.0,
        paths=listing.paths,
        rows=cache(partial(estimate_rows, bridge.session, sized) if is_parquet else (lambda: None)),
    )


@dataclass(frozen=True, slots=True)
class _Listing:
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    splittable: tuple[bool, ...]
    fraction: float

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _Listing:
        return cls(tuple(facts["paths"]), tuple(facts["sizes"]), tuple(facts["splittable"]), facts["fraction"])


def read_parquet(spark: SparkSession, schema: StructType, paths: Sequence[str], **options: str) -> DataFrame:
    """Return the rows of existing Parquet files.

    Spark checks many paths in a job with a task for each of them. A few tasks per core list 10 000 files in a second
    instead of half a minute.
    """
    user_tasks = int(str(spark.conf.get(_LISTING_TASKS)))
    few = max(_LEAST_LISTING_TASKS, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    with with_settings(spark, {_LISTING_TASKS: str(min(user_tasks, few))}):
        return spark.read.schema(schema).options(**options).parquet(*paths)


def unsupported_columns_reason(spark: SparkSession, kind: str, columns: Sequence[StructField]) -> str | None:
    """Return Spark's error for columns that a file format cannot store, None if it can store all of them.

    Uses ``DataSourceUtils.verifySchema`` (Spark 4.0 to 4.3), Spark's own check before a write.
    """
    bridge = Bridge(spark)
    package = "org.apache.spark.sql.execution.datasources."
    file_format = bridge.find(f"{package}{_FORMATS[kind]}")()
    schema = bridge.find("org.apache.spark.sql.types.DataType").fromJson(StructType(list(columns)).json())
    for_writing = [False] if bridge.version >= (4, 1) else []
    try:
        bridge.find(package + "DataSourceUtils").verifySchema(file_format, schema, *for_writing)
    except AnalysisException as error:
        return first_line(error)
    return None


def with_split_size(leaf: LogicalPlan, session: Session) -> LogicalPlan:
    """Return a file relation that takes its split size from another session.

    When a scan is executed, it reads the settings of the session that created its relation. Spark considers relations
    of different sessions equal and would reuse the old one, so an extra option distinguishes them.
    """
    return LogicalPlan(leaf._bridge, leaf._bridge.helper("FileRelations").withSplitSize(leaf, session))


def split_settings(max_split_bytes: int, open_cost: int) -> dict[str, str]:
    """Return the settings that make Spark split files at a size, regardless of the number of cores."""
    return {
        "spark.sql.files.maxPartitionBytes": str(max_split_bytes),
        "spark.sql.files.openCostInBytes": str(open_cost),
        "spark.sql.files.minPartitionNum": "1",
    }


def _partition_filters(session: Session, scan: LogicalPlan) -> list[Any]:
    todo = [spark_plan(session, scan)]
    while todo:
        node = todo.pop()
        if class_name(node) == "FileSourceScanExec":
            return without_subqueries(session, items(node.partitionFilters()))
        todo += children(node)
    return []
