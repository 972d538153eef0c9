"""What an upsert needs of an Iceberg table: files that Spark reads whole, and the columns of the new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.iceberg_files import IcebergFile, files_of, spark_schema
from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table
    from pyspark.sql.types import StructType


def live_files(table: Table, condition: BooleanExpression | None = None) -> list[IcebergFile]:
    """Return the files of the current snapshot that may hold rows that matter, each with all its rows.

    Raises
    ------
    SinkError
        If one is not a plain file of rows.
    """
    from pyiceberg.expressions import AlwaysTrue

    snapshot = snapshot_of(table)
    found = [] if snapshot is None else files_of(table, snapshot, AlwaysTrue() if condition is None else condition)
    if not all(one.is_plain for one in found):
        raise SinkError(
            f"rows of table {'.'.join(table.name())} cannot be replaced",
            cause="it has files with deleted rows, or files that are not Parquet",
            hint="rewrite its files with their deletes applied, as Iceberg's rewrite_data_files does",
        )
    return found


def snapshot_of(table: Table) -> int | None:
    """Return the number of a table's current snapshot, None if it has none."""
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def check_same_columns(table: Table, schema: StructType) -> None:
    """Refuse a table with other columns than those of the new rows: files written anew would lack the others.

    Raises
    ------
    SinkError
        If a name or a type differs.
    """
    now, written = ({one.name: one.dataType.simpleString() for one in of} for of in (spark_schema(table, None), schema))
    if now != written:
        names = sorted(name for name in now.keys() | written.keys() if now.get(name) != written.get(name))
        raise SinkError(
            f"the columns of table {'.'.join(table.name())} have changed while the job ran",
            cause=f"these are not as the job has written them: {', '.join(names)}",
            hint="run the job again",
        )


def check_upsert(table: Table) -> None:
    """Refuse a table whose files Spark cannot write anew.

    Raises
    ------
    SinkError
        If its columns have changed, rows of files are deleted, or pyiceberg would lose digits of its partitions.
    """
    from pyiceberg.types import DoubleType

    schema, why = table.schema(), ""
    by_double = any(
        str(field.transform) == "identity" and isinstance(schema.find_type(field.source_id), DoubleType)
        for spec in table.specs().values()
        for field in spec.fields
    )
    if len(table.metadata.schemas) > 1 or table.name_mapping() not in (None, schema.name_mapping):
        why = "its columns have changed since it was made, and Spark finds columns of files by their names"
    elif by_double:
        why = "it is partitioned by a column of type double, which pyiceberg rounds when it writes its entries anew"
    if why:
        name = ".".join(table.name())
        raise SinkError(f"rows of table {name} cannot be replaced", cause=why, hint="use another engine's MERGE")
    live_files(table)
