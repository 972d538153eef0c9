"""Checks of a file sink before any row is computed: partition columns, column types, permissions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import SinkError
from penstock.spark.bridge.settings import is_true
from penstock.spark.io.files import unsupported_columns_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.io.filesystem import Folder

_NESTED = ("array", "map", "struct", "variant")
"""Types that Spark cannot encode in folder names."""


def check_partition_columns(spark: SparkSession, schema: StructType, names: Sequence[str], where: str) -> None:
    """Reject partition columns that are missing, repeated or nested, and rows with partition columns only."""
    fold = name_folding(spark)
    fields = {fold(field.name): field for field in schema}
    checked = []
    for name in names:
        field = fields.get(fold(name))
        if field is None:
            raise SinkError.no_column(where, name, schema.fieldNames(), case_sensitive=is_case_sensitive(spark))
        kind = field.dataType.typeName()
        if kind in _NESTED:
            raise SinkError(
                f"{where} has the partition column {name!r}, which is of type {kind}",
                cause="the name of a folder cannot hold such a value",
                hint="partition by a column with plain values",
            )
        if field in checked:
            raise SinkError(f"{where} has the partition column {name!r} twice", hint="name it once")
        checked.append(field)
    if checked and len(checked) == len(schema):
        raise SinkError(
            f"{where} has only partition columns", cause="its files would hold no column", hint="leave one of them out"
        )


def check_format(spark: SparkSession, schema: StructType, kind: str, partition_by: Sequence[str], where: str) -> None:
    """Reject rows with two columns of the same name, or with a type that the format does not support."""
    fold = name_folding(spark)
    names = [fold(name) for name in schema.fieldNames()]
    duplicate = next((field.name for field, name in zip(schema, names, strict=True) if names.count(name) > 1), None)
    if duplicate is not None:
        raise SinkError(
            f"the rows for {where} have several columns {duplicate!r}",
            hint=f"rename one of them, as in df.withColumnRenamed({duplicate!r}, ...), or drop it",
        )
    folders = {fold(name) for name in partition_by}
    data_fields = [field for field, name in zip(schema, names, strict=True) if name not in folders]
    if kind == "text" and [field.dataType.typeName() for field in data_fields] != ["string"]:
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in data_fields)
        raise SinkError(
            f"{where} cannot hold the rows as text",
            cause=f"files of text have one column of type string, and the rows have {columns}",
            hint="make one text of the columns, as with to_csv or concat_ws, or choose another format",
        )
    refused = unsupported_columns_reason(spark, kind, data_fields)
    if refused is not None:
        raise SinkError(f"{where} cannot hold the rows", cause=refused, hint="cast or drop the column")


def check_rights(path: str, target: Folder, *, adds: bool) -> None:
    """Reject a folder that this user may not write to, as far as the file system reports it.

    `path` and `target` are the folder, as the user spells it and as Spark resolves it. If the sink `adds`, files are
    added to an existing folder; else the folder is created or replaced as a whole.
    """
    exists = target.exists()
    inside = exists and target.is_volume
    beside = target.resolved.parent.nearest_existing()  # holds the staging folder and the journal
    written = [*([target] if inside or (exists and adds) else []), *([] if inside else [beside])]
    for folder in written:
        local = folder.local_path
        # The operating system, unlike Hadoop, considers root and read-only volumes.
        if not (folder.may_write() if local is None else os.access(local, os.W_OK | os.X_OK)):
            raise SinkError.no_rights(path, str(folder))


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether Spark compares column names case-sensitively."""
    return is_true(spark.conf.get("spark.sql.caseSensitive", "false"))


def name_folding(spark: SparkSession) -> Callable[[str], str]:
    """Return the function that normalizes a column name for comparison."""
    return str if is_case_sensitive(spark) else str.lower
