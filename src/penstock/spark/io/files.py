"""File scans: the files that a relation reads, and the settings that control how Spark splits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
_LISTING_TASKS_SETTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
FAIL_ON_UNREADABLE = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Reader options if a job copies rows: an unreadable file raises an error, regardless of the session's settings."""


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a relation after partition pruning."""

    sizes: tuple[int, ...]
    """Bytes of each file."""
    splittable: tuple[bool, ...]
    """Whether each file can be divided into several splits."""
    format: str
    """Spark's short name of the format, such as ``parquet``."""
    name: str
    """The displayed name, see `FileFacts.name`."""
    fraction: float = 1.0
    """The estimated fraction of a row's bytes in the columns that are read; 1.0 for formats that are not columnar."""
    paths: tuple[str, ...] = field(default=(), repr=False)
    rows: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)
    """Returns the estimated number of rows; None if the format is not Parquet, or a footer is unreadable."""


def is_split_by_size(leaf: LogicalNode) -> bool:
    """Whether a leaf is a file scan that Spark splits by size (a ``HadoopFsRelation`` without buckets)."""
    return leaf.files is not None and not leaf.files.is_bucketed


def list_files(leaf: LogicalNode, scan: LogicalPlan) -> FileListing:
    """Return the files that `scan`, the relation `leaf` with filters above it, reads after partition pruning."""
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

    Spark runs a job to check many paths, by default with a task for each path. With at most four tasks per core, the
    check of 10 000 files takes a second instead of half a minute.
    """
    user_tasks = int(str(spark.conf.get(_LISTING_TASKS_SETTING)))
    max_tasks = max(16, 4 * spark.sparkContext.defaultParallelism)
    with with_settings(spark, {_LISTING_TASKS_SETTING: str(min(user_tasks, max_tasks))}):
        return spark.read.schema(schema).options(**options).parquet(*paths)


def unsupported_columns_reason(spark: SparkSession, format_name: str, columns: Sequence[StructField]) -> str | None:
    """Return Spark's error for columns that a file format cannot store, None if it can store all columns."""
    bridge = Bridge(spark)
    package = "org.apache.spark.sql.execution.datasources."
    file_format = bridge.find(f"{package}{_FORMATS[format_name]}")()
    schema = bridge.find("org.apache.spark.sql.types.DataType").fromJson(StructType(list(columns)).json())
    since_4_1 = [False] if bridge.version >= (4, 1) else []
    try:
        bridge.find(package + "DataSourceUtils").verifySchema(file_format, schema, *since_4_1)
    except AnalysisException as error:
        return first_line(error)
    return None


def with_split_size(leaf: LogicalPlan, session: Session) -> LogicalPlan:
    """Return a file relation that takes its split size from another session.

    When a scan runs, it reads the settings of the session that created its relation. Spark considers relations of
    different sessions equal and would reuse the first one, so an additional option makes the new relation different.
    """
    return LogicalPlan(leaf._bridge, leaf._bridge.helper("FileRelations").withSplitSize(leaf, session))


def split_settings(max_split_bytes: int, open_cost: int) -> dict[str, str]:
    """Return settings for splits of at most `max_split_bytes`, where each file counts as `open_cost` bytes larger."""
    return {
        "spark.sql.files.maxPartitionBytes": str(max_split_bytes),
        "spark.sql.files.openCostInBytes": str(open_cost),
        "spark.sql.files.minPartitionNum": "1",  # else the number of cores limits the size of splits
    }
