"""Policies that announce complete partitions to readers (Flink's partition commit)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from urllib.parse import unquote

from penstock.connectors.core.base import SinkStage, StageReport
from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.connectors.core.base import SinkJob

SUCCESS_FILE = "success-file"
METASTORE = "metastore"
KINDS = (SUCCESS_FILE, METASTORE)  # the names of the policies that Penstock provides
SUCCESS_MARKER = "_SUCCESS"
NULL_FOLDER_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The value that stands for null in folder names."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """A partition whose files are all visible.

    >>> def announce(partition):
    ...     print(f"{partition} is complete")
    >>> days = spark.range(3).selectExpr("id", "'2024-01-01' AS day")
    >>> env.write(days, FileSink(f"{folder}/days", partition_by="day", partition_commit=[announce]))
    >>> job = env.execute()
    day=2024-01-01 is complete

    Parameters
    ----------
    spark
        The session.
    path
        The folder of the partition.
    values
        The values of the partition columns as strings, in the order of the folders; None for null.
    table
        The table of the sink; None if the sink does not write to a table.
    """

    spark: SparkSession
    path: str
    values: Mapping[str, str | None]
    table: str | None = None

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.values.items()) or self.path


PartitionCommitPolicy = Callable[[CommittedPartition], object]
"""A function that is called when a partition is complete; it must tolerate repeated calls for a partition."""


def partition_values(folder: str) -> dict[str, str | None]:
    """Parse partition values from folder names such as ``day=2024-01-01/hour=7``."""
    pairs = (name.partition("=") for name in folder.split("/") if name)
    return {unquote(key): None if value == NULL_FOLDER_VALUE else unquote(value) for key, _, value in pairs}


def write_marker(partition: CommittedPartition) -> None:
    """Create an empty file ``_SUCCESS`` in the partition's folder."""
    HadoopPath(Bridge(partition.spark), partition.path).child(SUCCESS_MARKER).touch()


def add_to_metastore(partition: CommittedPartition) -> None:
    """Add the partition to the table in the catalog unless the table has the partition already."""
    spec = ", ".join(f"`{key}` = {_sql_literal(value)}" for key, value in partition.values.items())
    location = partition.path.replace("'", "\\'")
    partition.spark.sql(f"ALTER TABLE {partition.table} ADD IF NOT EXISTS PARTITION ({spec}) LOCATION '{location}'")


def _sql_literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@runtime_checkable
class PartitionCommitter(Protocol):
    """A sink job whose partitions can be announced when they are complete."""

    def commit_partitions(self, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
        """Apply policies to every written partition, after all its files have become visible."""


def commit_stage(kinds: Iterable[str | PartitionCommitPolicy], name: str, table: str | None, where: str) -> SinkStage:
    """Return the step that applies policies; `name` is the name of the sink, and `where` describes it in messages."""
    run = partial(_commit_partitions, policies=policies_of(kinds, table, where))
    return SinkStage(f"Partition commit: {name}", run, after_commit=True)


def _commit_partitions(job: SinkJob, policies: Sequence[tuple[str, PartitionCommitPolicy]]) -> StageReport:
    if isinstance(job, PartitionCommitter):
        return job.commit_partitions(policies)
    return StageReport("nothing", "nothing was written")  # only `NothingToWrite` cannot commit partitions


def policies_of(
    kinds: Iterable[str | PartitionCommitPolicy], table: str | None, where: str
) -> tuple[tuple[str, PartitionCommitPolicy], ...]:
    """Return policies with their names; `kinds` are names of policies, or functions.

    The metastore policy comes first, so that the catalog has a partition before the marker file announces it. Raise
    `SinkError` if a kind is invalid, or is the metastore policy and the sink has no table.
    """
    policies: list[tuple[str, PartitionCommitPolicy]] = []
    for kind in kinds:
        if callable(kind):
            policies.append((getattr(kind, "__name__", type(kind).__name__), kind))
        elif kind == METASTORE:
            if table is None:
                raise SinkError(
                    f"{where} has no table that the policy {METASTORE!r} could add partitions to",
                    hint="set FileSink(table=...), or choose another policy",
                )
            policies.insert(0, (METASTORE, add_to_metastore))
        elif kind == SUCCESS_FILE:
            policies.append((SUCCESS_FILE, write_marker))
        else:
            raise SinkError(
                f"partition commit policy {kind!r} of {where} is not valid",
                hint=f"choose {' or '.join(KINDS)}, or pass a function of a CommittedPartition",
            )
    return tuple(policies)
