"""Checks of a file sink before any row is computed: partition columns, column types, permissions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import SinkError
from penstock.spark.bridge.settings import is_true
from penstock.spark.io.files import unsupported_columns_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.io.filesystem import HadoopPath

_NESTED = ("array", "map", "struct", "variant")
"""Types that Spark cannot encode in folder names."""


def check_partition_columns(spark: SparkSession, schema: StructType, names: Sequence[str], where: str) -> None:
    """Reject partition columns that are missing, repeated or nested, or all columns; `where` names the sink."""
    fold = name_folding(spark)
    fields = {fold(field.name): field for field in schema}
    seen = []
    for name in names:
        field = fields.get(fold(name))
        if field is None:
            raise SinkError.no_column(where, name, schema.fieldNames(), case_sensitive=is_case_sensitive(spark))
        type_name = field.dataType.typeName()
        if type_name in _NESTED:
            raise SinkError(
                f"{where} has the partition column {name!r}, which is of type {type_name}",
                cause="the name of a folder cannot hold such a value",
                hint="partition by a column with plain values",
            )
        if field in seen:
            raise SinkError(f"{where} has the partition column {name!r} twice", hint="name it once")
        seen.append(field)
    if seen and len(seen) == len(schema):
        raise SinkError(
            f"{where} has only partition columns", cause="its files would have no column", hint="leave one of them out"
        )


def check_format(
    spark: SparkSession, schema: StructType, format_name: str, partition_by: Sequence[str], where: str
) -> None:
    """Reject rows with two columns of a name, or columns that the format does not support; `where` names the sink."""
    fold = name_folding(spark)
    names = [fold(name) for name in schema.fieldNames()]
    duplicate = next((field.name for field, name in zip(schema, names, strict=True) if names.count(name) > 1), None)
    if duplicate is not None:
        raise SinkError(
            f"the rows for {where} have several columns {duplicate!r}",
            hint=f"rename one of them, as in df.withColumnRenamed({duplicate!r}, ...), or drop it",
        )
    partition_columns = {fold(name) for name in partition_by}
    data_fields = [field for field, name in zip(schema, names, strict=True) if name not in partition_columns]
    if format_name == "text" and [field.dataType.typeName() for field in data_fields] != ["string"]:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in data_fields)
        raise SinkError(
            f"{where} cannot hold the rows as text",
            cause=f"files of text have one column of type string, and the rows have {columns}",
            hint="combine the columns into one string, as with to_csv or concat_ws, or choose another format",
        )
    reason = unsupported_columns_reason(spark, format_name, data_fields)
    if reason is not None:
        raise SinkError(f"{where} cannot hold the rows", cause=reason, hint="cast or drop the column")


def check_rights(path: str, target: HadoopPath, *, appends: bool) -> None:
    """Reject a folder that this user may not write to, as far as the file system reports permissions.

    `path` is the folder as the user spells it, and `target` as Spark resolves it. With `appends`, files are added to an
    existing folder; otherwise the folder is created or replaced as a whole.
    """
    exists = target.exists()
    stages_inside = exists and target.is_volume  # files cannot be renamed across volumes
    parent = target.resolved.parent.nearest_existing()  # of the staging folder and the journal
    written_folders = [target] if stages_inside or (exists and appends) else []
    for folder in [*written_folders, *([] if stages_inside else [parent])]:
        local = folder.local_path
        # Hadoop only compares permission bits; the operating system also considers the root user and read-only volumes.
        if not (folder.may_write() if local is None else os.access(local, os.W_OK | os.X_OK)):
            raise SinkError(
                f"output {path} cannot be written",
                cause=f"this user has no permission to write to {folder}",
                hint="choose another path, or let the owner of the folder grant the permission",
            )


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether Spark compares column names case-sensitively."""
    return is_true(spark.conf.get("spark.sql.caseSensitive", "false"))


def name_folding(spark: SparkSession) -> Callable[[str], str]:
    """Return the function that normalizes a column name for comparison."""
    return str if is_case_sensitive(spark) else str.lower
