"""File scans: which files a relation would read, and how Spark is told to cut them."""

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

_BY_COLUMN = ("parquet", "orc")
_FORMATS = {
    "parquet": "parquet.ParquetFileFormat",
    "orc": "orc.OrcFileFormat",
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "text": "text.TextFileFormat",
}
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
EVERY_ROW = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of a reader whose rows are written elsewhere: files that cannot be read must fail it, whatever the session's
settings say of queries."""
_LEAST_LISTING_TASKS = 16
_TASKS_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files behind a relation, after pruning of partitions.

    Parameters
    ----------
    sizes
        Bytes of each file.
    splittable
        Whether each may be read by several tasks.
    format
        Its short name, such as ``parquet``.
    name
        The table's name, or the first path.
    fraction
        Which part of a row is read; formats by column only.
    paths
        Where they are.
    rows
        Returns about how many rows they hold, or None where only reading them would tell.
    """

    sizes: tuple[int, ...]
    splittable: tuple[bool, ...]
    format: str
    name: str
    fraction: float = 1.0
    paths: tuple[str, ...] = field(default=(), repr=False)
    rows: Callable[[], int | None] = field(default=lambda: None, compare=False, repr=False)


def is_cut_by_size(leaf: LogicalNode) -> bool:
    """Whether a leaf is a scan of files that Spark cuts by size (``HadoopFsRelation`` that is not bucketed)."""
    return leaf.files is not None and not leaf.files.bucketed


def list_files(leaf: LogicalNode, scan: LogicalPlan) -> FileListing:
    """Return the files a scan would read (``FileIndex.listFiles`` with the partition filters of its plan).

    Parameters
    ----------
    leaf
        A file relation.
    scan
        The plan of the relation with the filters right above it.
    """
    assert leaf.files is not None
    bridge = leaf._bridge
    filters = _partition_filters(bridge.session, scan) if leaf.partition_columns else []
    answer = bridge.helper("FileRelations").list(leaf, scan, bridge.seq(filters))
    found = _Listed.of(answers.facts(answer))
    is_parquet = leaf.files.format == "parquet"
    sized = list(zip(found.paths, found.sizes, strict=True))
    return FileListing(
        sizes=found.sizes,
        splittable=found.splittable,
        format=leaf.files.format,
        name=leaf.files.name,
        fraction=found.fraction if leaf.files.format in _BY_COLUMN else 1.0,
        paths=found.paths,
        rows=cache(partial(estimate_rows, bridge.session, sized) if is_parquet else (lambda: None)),
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """The files that a relation has listed, and which part of a row its scan wants."""

    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    splittable: tuple[bool, ...]
    fraction: float

    @classmethod
    def of(cls, facts: dict[str, Any]) -> _Listed:
        return cls(tuple(facts["paths"]), tuple(facts["sizes"]), tuple(facts["splittable"]), facts["fraction"])


def read_parquet(spark: SparkSession, schema: StructType, paths: Sequence[str], **options: str) -> DataFrame:
    """Return the rows of parquet files that are known to exist.

    Spark looks at many paths by a job with a task for each of them; a few for each core are as good, and take a second
    for 10 000 files instead of half a minute.
    """
    given = int(str(spark.conf.get(_LISTING_TASKS)))
    few = max(_LEAST_LISTING_TASKS, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    with with_settings(spark, {_LISTING_TASKS: str(min(given, few))}):
        return spark.read.schema(schema).options(**options).parquet(*paths)


def refused_columns(spark: SparkSession, kind: str, columns: Sequence[StructField]) -> str | None:
    """Return what Spark says of columns that files of a format cannot hold, None if they can.

    Uses ``DataSourceUtils.verifySchema`` (Spark 4.0 to 4.3), which Spark asks when it writes.
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

    A scan reads the settings of the session that made its relation, when it is executed. Relations of different
    sessions are equal to Spark, which would keep the old one; an option of our own tells them apart.
    """
    return LogicalPlan(leaf._bridge, leaf._bridge.helper("FileRelations").withSplitSize(leaf, session))


def split_settings(max_split_bytes: int, open_cost: int) -> dict[str, str]:
    """Return the settings that make Spark cut files at a size, whatever the number of cores."""
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
