"""Telling others that a partition of files is complete (FLIP-146's partition commit)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.errors import SinkError
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

SUCCESS_FILE = "success-file"
METASTORE = "metastore"
KINDS = (SUCCESS_FILE, METASTORE)
MARKER = "_SUCCESS"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What the name of a folder has in place of null."""


@dataclass(frozen=True, slots=True)
class CommittedPartition:
    """A partition all of whose files are visible.

    Parameters
    ----------
    spark
        The session.
    path
        Its folder.
    values
        The values of the partition columns as texts, in the order of the folders; None for null.
    table
        The table of the sink, None if it has none.
    """

    spark: SparkSession
    path: str
    values: Mapping[str, str | None]
    table: str | None = None

    def __str__(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.values.items()) or self.path


PartitionCommitPolicy = Callable[[CommittedPartition], object]
"""What is done once a partition is complete; it may be done again for the same one."""


def partition_values(folder: str) -> dict[str, str | None]:
    """Return the values of partition columns from the names of folders, such as ``day=2024-01-01/hour=7``."""
    pairs = (name.partition("=") for name in folder.split("/") if name)
    return {unquote(key): None if value == NO_VALUE else unquote(value) for key, _, value in pairs}


def write_marker(partition: CommittedPartition) -> None:
    """Put an empty file ``_SUCCESS`` into the partition's folder."""
    Folder(Bridge(partition.spark), partition.path).child(MARKER).touch()


def add_to_metastore(partition: CommittedPartition) -> None:
    """Make the partition known to the catalogue's table; one that is known already stays."""
    spec = partition_clause(partition.values)
    location = partition.path.replace("'", "\\'")
    partition.spark.sql(f"ALTER TABLE {partition.table} ADD IF NOT EXISTS PARTITION {spec} LOCATION '{location}'")


def partition_clause(values: Mapping[str, str | None]) -> str:
    """Return the values of partition columns as statements name a partition, with its parentheses."""
    return "(" + ", ".join(f"`{key}` = {_literal(value)}" for key, value in values.items()) + ")"


def _literal(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def policies_of(
    wanted: Iterable[str | PartitionCommitPolicy], table: str | None, where: str
) -> tuple[tuple[str, PartitionCommitPolicy], ...]:
    """Return policies with their names, the metastore's first: a marker is the last thing to appear.

    Raises
    ------
    SinkError
        If a kind is not known, or the metastore's is wanted of a sink without a table.
    """
    found: list[tuple[str, PartitionCommitPolicy]] = []
    for one in wanted:
        if callable(one):
            found.append((getattr(one, "__name__", type(one).__name__), one))
        elif one == METASTORE:
            if table is None:
                raise SinkError(
                    f"{where} has no table that the policy {METASTORE!r} could add partitions to",
                    hint="give FileSink(table=...), or another policy",
                )
            found.insert(0, (METASTORE, add_to_metastore))
        elif one == SUCCESS_FILE:
            found.append((SUCCESS_FILE, write_marker))
        else:
            raise SinkError(
                f"partition commit policy {one!r} of {where} is not known",
                hint=f"give {' or '.join(KINDS)}, or a function of a CommittedPartition",
            )
    return tuple(found)
