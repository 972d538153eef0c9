"""Checks and casts of rows that are appended to a table with an existing schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
"""The types to which a type can be cast without loss."""

LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key in which Spark stores that a string column is a char or varchar."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Resolution of column names of rows against those of a table; `where` is the table, for messages."""

    names: Sequence[str]
    where: str
    is_case_sensitive: bool

    def of(self, rows: StructType) -> list[str]:
        """Return the table's name of each column; raise `SinkError` if the table lacks it or the rows have it twice."""
        folded = {} if self.is_case_sensitive else {name.lower(): name for name in self.names}
        resolved: list[str] = []
        for column in rows.fieldNames():
            name = column if column in self.names else folded.get(column.lower())
            if name is None or name in resolved:
                problem = "twice" if name else "that the table does not have"
                raise SinkError(
                    f"the rows for {self.where} have a column {column} {problem}",
                    cause=f"its columns are {', '.join(self.names)}",
                    hint=f"drop the column, as in df.drop({column!r}), or write to another table",
                )
            resolved.append(name)
        return resolved


def check_columns(rows: StructType, table: StructType, where: str, *, case_sensitive: bool) -> None:
    """Reject rows that a table cannot hold: with other columns or types, or without a column that must not be null.

    Columns are matched by name; columns that the rows lack become null. A null in a column that does not allow nulls is
    detected when the rows are written.
    """
    columns = _columns(rows, table, where, case_sensitive=case_sensitive)
    for field in table:
        column = columns.get(field.name)
        if column is None:
            if not field.nullable:
                raise SinkError(
                    f"the rows for {where} have no column {field.name}",
                    cause="the table does not allow nulls in it",
                    hint="add the column",
                )
        elif not _fits(column.dataType, field.dataType):
            name, target = column.dataType.simpleString(), field.dataType.simpleString()
            raise SinkError(
                f"column {column.name} for {where} is of type {name}, and the table's is of type {target}",
                cause="nulls within it are not allowed" if name == target else "files of both could not be read",
                hint=f"cast it, as in df.withColumn({column.name!r}, ...cast({target!r})), or write to another table",
            )


def in_shape_of(df: DataFrame, table: StructType, where: str, *, case_sensitive: bool) -> DataFrame:
    """Return rows cast to the columns of a table; `check_columns` must have accepted them."""
    columns = _columns(df.schema, table, where, case_sensitive=case_sensitive)

    def column(field: StructField) -> Column:
        source = columns.get(field.name)
        if source is None:
            return F.lit(None).cast(field.dataType)
        value = df[quoted(source.name)]
        if source.dataType.simpleString() != field.dataType.simpleString():
            value = value.cast(field.dataType)
        if source.nullable and not field.nullable:
            value = F.coalesce(value, F.raise_error(f"column {field.name} of {where} does not allow nulls"))
        length = field.metadata.get(LENGTH)
        return value if length is None else _fit_length(value, str(length), f"column {field.name} of {where}")

    return df.select([column(field).alias(field.name) for field in table])


def _fit_length(text: Column, kind: str, where: str) -> Column:
    """Return strings as Spark stores them in a char (padded) or varchar (without surplus trailing spaces)."""
    name, _, rest = kind.partition("(")
    max_length = int(rest.rstrip(")"))
    stored = F.rpad(text, max_length, " ") if name == "char" else F.substring(text, 1, max_length)
    too_long = F.raise_error(f"{where} takes {max_length} characters")
    return F.when(F.length(F.rtrim(text)) > max_length, too_long).otherwise(stored)


def quoted(name: str) -> str:
    """Return a column name quoted for Spark, so that it may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def as_nullable(schema: StructType) -> StructType:
    """Return a schema with all columns nullable, as Spark does for a new table."""

    def change(field: StructField, kind: DataType) -> StructField:
        return StructField(field.name, kind, True, field.metadata)

    return cast("StructType", map_fields(schema, change, nullable=True))


def _columns(rows: StructType, table: StructType, where: str, *, case_sensitive: bool) -> dict[str, StructField]:
    """Return the columns of rows by their names in the table."""
    return dict(zip(TableColumns(table.fieldNames(), where, case_sensitive).of(rows), rows, strict=True))


def _fits(source: DataType, target: DataType) -> bool:
    """Return whether a type can be cast to the table's type without loss, nested nulls included."""
    match source, target:
        case StructType(), StructType():
            return source.fieldNames() == target.fieldNames() and all(
                _same(field.dataType, target_field.dataType) and target_field.nullable >= field.nullable
                for field, target_field in zip(source, target, strict=True)
            )
        case ArrayType(), ArrayType():
            return target.containsNull >= source.containsNull and _same(source.elementType, target.elementType)
        case MapType(), MapType():
            values = target.valueContainsNull >= source.valueContainsNull and _same(source.valueType, target.valueType)
            return values and _same(source.keyType, target.keyType)
    return source == target or target.simpleString() in _WIDER.get(source.simpleString(), ())


def _same(source: DataType, target: DataType) -> bool:
    return source.simpleString() == target.simpleString() and _fits(source, target)


def map_fields(
    kind: DataType, change: Callable[[StructField, DataType], StructField], *, nullable: bool = False
) -> DataType:
    """Return a type with changed fields, nested ones first; `nullable` allows nulls in arrays and maps."""

    def inner(part: DataType) -> DataType:
        return map_fields(part, change, nullable=nullable)

    match kind:
        case StructType():
            return StructType([change(field, inner(field.dataType)) for field in kind])
        case ArrayType():
            return ArrayType(inner(kind.elementType), nullable or kind.containsNull)
        case MapType():
            return MapType(inner(kind.keyType), inner(kind.valueType), nullable or kind.valueContainsNull)
    return kind
