"""What can be told of files before any row is made: partition columns, types of columns, rights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import SinkError
from penstock.spark.files import refused_columns
from penstock.spark.settings import is_true

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.filesystem import Folder

_NO_FOLDER = ("array", "map", "struct", "variant")
"""Types whose values Spark makes no names of folders from."""


def check_partition_columns(spark: SparkSession, schema: StructType, names: Sequence[str], where: str) -> None:
    """Refuse partition columns that rows do not have, or that no folder can be named after.

    Raises
    ------
    SinkError
        If a column is missing or named twice, its values are nested, or no other column is left.
    """
    case_sensitive = is_case_sensitive(spark)
    known = {folded(field.name, case_sensitive=case_sensitive): field for field in schema}
    found = []
    for name in names:
        field = known.get(folded(name, case_sensitive=case_sensitive))
        if field is None:
            raise SinkError.no_column(where, name, schema.fieldNames(), case_sensitive=case_sensitive)
        kind = field.dataType.typeName()
        if kind in _NO_FOLDER:
            raise SinkError(
                f"{where} has the partition column {name!r}, which is of type {kind}",
                cause="the name of a folder cannot hold such a value",
                hint="partition by a column with plain values",
            )
        if field in found:
            raise SinkError(f"{where} has the partition column {name!r} twice", hint="name it once")
        found.append(field)
    if found and len(found) == len(schema):
        raise SinkError(
            f"{where} has only partition columns", cause="its files would hold no column", hint="leave one of them out"
        )


def check_format(spark: SparkSession, schema: StructType, kind: str, partition_by: Sequence[str], where: str) -> None:
    """Refuse rows that files of a format cannot hold.

    Raises
    ------
    SinkError
        If two columns have one name, or one is of a type that the format does not know.
    """
    case_sensitive = is_case_sensitive(spark)
    names = [folded(name, case_sensitive=case_sensitive) for name in schema.fieldNames()]
    twice = next((field.name for field, name in zip(schema, names, strict=True) if names.count(name) > 1), None)
    if twice is not None:
        raise SinkError(
            f"the rows for {where} have several columns {twice!r}",
            hint=f"rename one of them, as in df.withColumnRenamed({twice!r}, ...), or drop it",
        )
    folders = {folded(name, case_sensitive=case_sensitive) for name in partition_by}
    inside = [field for field, name in zip(schema, names, strict=True) if name not in folders]
    if kind == "text" and [field.dataType.typeName() for field in inside] != ["string"]:
        held = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in inside)
        raise SinkError(
            f"{where} cannot hold the rows as text",
            cause=f"files of text have one column of type string, and the rows have {held}",
            hint="make one text of the columns, as with to_csv or concat_ws, or choose another format",
        )
    refused = refused_columns(spark, kind, inside)
    if refused is not None:
        raise SinkError(f"{where} cannot hold the rows", cause=refused, hint="cast or drop the column")


def check_rights(path: str, target: Folder, *, adds: bool) -> None:
    """Refuse a folder that this user may not write to, as far as the file system tells.

    Parameters
    ----------
    path, target
        The folder, as the user and as Spark names it.
    adds
        Whether files are put into a folder that is there; else it is put there, or replaced, as a whole.

    Raises
    ------
    SinkError
        If there is no right to write.
    """
    is_there = target.exists()
    inside = is_there and target.is_volume
    beside = target.resolved.parent.nearest()  # the hidden folder lies there, and the journal
    needed = [*([target] if inside or (is_there and adds) else []), *([] if inside else [beside])]
    for folder in needed:
        local = folder.local_path
        # What this machine's system says knows of root, and of volumes that can only be read.
        if not (folder.may_write() if local is None else os.access(local, os.W_OK | os.X_OK)):
            raise SinkError.no_rights(path, str(folder))


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether the case of columns' names matters."""
    return is_true(spark.conf.get("spark.sql.caseSensitive", "false"))


def folded(name: str, *, case_sensitive: bool) -> str:
    """Return a name by which columns are found."""
    return name if case_sensitive else name.lower()
