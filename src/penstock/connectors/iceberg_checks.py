"""Checks whether an upsert can rewrite the files of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.iceberg_files import IcebergFile, files_of, spark_schema
from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType


def live_files(table: Table, condition: BooleanExpression | None = None) -> list[IcebergFile]:
    """Return the files of the current snapshot that may have rows that meet a condition.

    Raises
    ------
    SinkError
        If a file has deleted rows, or is not Parquet.
    """
    from pyiceberg.expressions import AlwaysTrue

    snapshot = snapshot_of(table)
    files = [] if snapshot is None else files_of(table, snapshot, AlwaysTrue() if condition is None else condition)
    if not all(file.is_plain for file in files):
        raise SinkError(
            f"rows of table {'.'.join(table.name())} cannot be replaced",
            cause="it has files with deleted rows, or files that are not Parquet",
            hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
        )
    return files


def snapshot_of(table: Table) -> int | None:
    """Return the id of a table's current snapshot, None if it has none."""
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def check_same_columns(table: Table, schema: StructType) -> None:
    """Reject a table with columns other than those of the new rows, which rewritten files would lack.

    Raises
    ------
    SinkError
        If a name or a type differs.
    """
    current, written = (
        {field.name: field.dataType.simpleString() for field in columns}
        for columns in (spark_schema(table, None), schema)
    )
    if current != written:
        names = sorted(name for name in current.keys() | written.keys() if current.get(name) != written.get(name))
        raise SinkError(
            f"the columns of table {'.'.join(table.name())} have changed while the job ran",
            cause=f"these are not as the job has written them: {', '.join(names)}",
            hint="run the job again",
        )


def check_upsert(table: Table) -> None:
    """Reject a table whose files Spark cannot rewrite.

    Raises
    ------
    SinkError
        If its columns have changed, files have deleted rows, or pyiceberg would round its partition values.
    """
    from pyiceberg.types import DoubleType

    schema, cause = table.schema(), ""
    by_double = any(
        str(field.transform) == "identity" and isinstance(schema.find_type(field.source_id), DoubleType)
        for spec in table.specs().values()
        for field in spec.fields
    )
    if len(table.metadata.schemas) > 1 or table.name_mapping() not in (None, schema.name_mapping):
        cause = "its columns have changed since it was created, and Spark finds columns of files by their names"
    elif by_double:
        cause = "it is partitioned by a column of type double, which pyiceberg rounds when it writes its entries anew"
    if cause:
        name = ".".join(table.name())
        raise SinkError(f"rows of table {name} cannot be replaced", cause=cause, hint="use another engine's MERGE")
    live_files(table)
