"""File scans: the files that a relation reads, and the settings that control how Spark splits them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructField, StructType

from penstock.errors import first_line
from penstock.spark.bridge import answers
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.parquet import estimate_rows
from penstock.spark.plans.dataframes import with_settings
from penstock.spark.plans.logical_plan import LogicalPlan
from penstock.spark.plans.planning import partition_filters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.bridge.handles import Session
    from penstock.spark.plans.nodes import LogicalNode

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


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a relation after partition pruning."""

    sizes: tuple[int, ...]
    splittable: tuple[bool, ...]
    format: str
    """Spark's short name of the format, such as ``parquet``."""
    name: str
    """The table's name, or the first path."""
    fraction: float = 1.0
    """The fraction of a row that is read; 1.0 for formats that are not columnar."""
    paths: tuple[str, ...] = field(default=(), repr=False)
    rows: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)
    """Returns the estimated number of rows, None if only reading the files would tell."""


def is_split_by_size(leaf: LogicalNode) -> bool:
    """Whether a leaf is a file scan that Spark splits by size (a ``HadoopFsRelation`` without buckets)."""
    return leaf.files is not None and not leaf.files.bucketed


def list_files(leaf: LogicalNode, scan: LogicalPlan) -> FileListing:
    """Return the files that `scan`, a relation with filters above it, reads after partition pruning."""
    assert leaf.files is not None
    bridge = leaf._bridge
    filters = partition_filters(bridge.session, scan, "FileSourceScanExec") if leaf.partition_columns else []
    facts = answers.facts(bridge.helper("FileRelations").list(leaf, scan, bridge.seq(filters)))
    estimate = partial(estimate_rows, bridge.session, list(zip(facts["paths"], facts["sizes"], strict=True)))
    return FileListing(
        sizes=tuple(facts["sizes"]),
        splittable=tuple(facts["splittable"]),
        format=leaf.files.format,
        name=leaf.files.name,
        fraction=facts["fraction"] if leaf.files.format in {"parquet", "orc"} else 1.0,
        paths=tuple(facts["paths"]),
        rows=cache(estimate if leaf.files.format == "parquet" else lambda: None),
    )


def read_parquet(spark: SparkSession, schema: StructType, paths: Sequence[str], **options: str) -> DataFrame:
    """Return the rows of existing Parquet files.

    Spark checks many paths in a job with a task for each of them. A few tasks per core list 10 000 files in a second
    instead of half a minute.
    """
    user_tasks = int(str(spark.conf.get(_LISTING_TASKS)))
    few = max(16, 4 * spark.sparkContext.defaultParallelism)
    with with_settings(spark, {_LISTING_TASKS: str(min(user_tasks, few))}):
        return spark.read.schema(schema).options(**options).parquet(*paths)


def unsupported_columns_reason(spark: SparkSession, kind: str, columns: Sequence[StructField]) -> str | None:
    """Return Spark's error for columns that a file format cannot store, None if it can store all of them."""
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
