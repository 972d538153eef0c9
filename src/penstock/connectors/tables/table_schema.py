"""Checks and casts of rows that are written into a table with an existing schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.errors import SinkError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_LOSSLESS_CASTS = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
"""For each type of rows, the column types to which it can be cast without loss."""

CHAR_TYPE_KEY = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key in which Spark stores the char or varchar type of a string column, such as ``varchar(5)``."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The names of a table's columns, to which those of rows are resolved; `where` names the table in messages."""

    names: Sequence[str]
    where: str
    is_case_sensitive: bool

    def resolve(self, rows: StructType) -> list[str]:
        """Return the table's name for each column of rows; raise `SinkError` for an unknown or repeated column."""
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
    """Reject rows with columns or types that a table cannot hold, or without a column that must not be null.

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
        elif not _can_cast(column.dataType, field.dataType):
            name, target = column.dataType.simpleString(), field.dataType.simpleString()
            raise SinkError(
                f"column {column.name} for {where} is of type {name}, but in the table it is of type {target}",
                cause="its nested nulls are not allowed" if name == target else "files with both cannot be read",
                hint=f"cast it, as in df.withColumn({column.name!r}, ...cast({target!r})), or write to another table",
            )


def cast_to_table(df: DataFrame, table: StructType, where: str, *, case_sensitive: bool) -> DataFrame:
    """Return rows cast to the columns of a table; `check_columns` must have accepted them."""
    columns = _columns(df.schema, table, where, case_sensitive=case_sensitive)

    def column(field: StructField) -> Column:
        row_field = columns.get(field.name)
        if row_field is None:
            return F.lit(None).cast(field.dataType)
        value = df[quoted(row_field.name)]
        if row_field.dataType.simpleString() != field.dataType.simpleString():
            value = value.cast(field.dataType)
        if row_field.nullable and not field.nullable:
            value = F.coalesce(value, F.raise_error(f"column {field.name} of {where} does not allow nulls"))
        length = field.metadata.get(CHAR_TYPE_KEY)
        return value if length is None else _fit_length(value, str(length), f"column {field.name} of {where}")

    return df.select([column(field).alias(field.name) for field in table])


def _fit_length(text: Column, char_type: str, where: str) -> Column:
    """Return strings as Spark stores them: padded for char, without surplus spaces for varchar; longer strings fail."""
    name, _, length = char_type.partition("(")
    max_length = int(length.rstrip(")"))
    stored = F.rpad(text, max_length, " ") if name == "char" else F.substring(text, 1, max_length)
    too_long = F.raise_error(f"{where} takes {max_length} characters")
    return F.when(F.length(F.rtrim(text)) > max_length, too_long).otherwise(stored)


def quoted(name: str) -> str:
    """Return a column name quoted for Spark, so that it may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def as_nullable(schema: StructType) -> StructType:
    """Return a schema with all columns and nested values nullable, as Spark does for a new table."""

    def change(field: StructField, data_type: DataType) -> StructField:
        return StructField(field.name, data_type, True, field.metadata)

    return cast("StructType", map_fields(schema, change, nullable=True))


def _columns(rows: StructType, table: StructType, where: str, *, case_sensitive: bool) -> dict[str, StructField]:
    """Return the columns of rows, each by the name of the table's column that it is resolved to."""
    return dict(zip(TableColumns(table.fieldNames(), where, case_sensitive).resolve(rows), rows, strict=True))


def _can_cast(source: DataType, target: DataType) -> bool:
    """Whether a type can be cast to the table's type without loss; nested types may only differ in allowing nulls."""
    match source, target:
        case StructType(), StructType():
            return source.fieldNames() == target.fieldNames() and all(
                target_field.nullable >= field.nullable and _is_same(field.dataType, target_field.dataType)
                for field, target_field in zip(source, target, strict=True)
            )
        case ArrayType(), ArrayType():
            return target.containsNull >= source.containsNull and _is_same(source.elementType, target.elementType)
        case MapType(), MapType():
            is_same = _is_same(source.valueType, target.valueType) and _is_same(source.keyType, target.keyType)
            return is_same and target.valueContainsNull >= source.valueContainsNull
    return source == target or target.simpleString() in _LOSSLESS_CASTS.get(source.simpleString(), ())


def _is_same(source: DataType, target: DataType) -> bool:
    """Whether two types are equal except for nested nulls that only the target allows."""
    return source.simpleString() == target.simpleString() and _can_cast(source, target)


def map_fields(
    data_type: DataType, change: Callable[[StructField, DataType], StructField], *, nullable: bool = False
) -> DataType:
    """Return a type with each field replaced by `change(field, new type)`; `nullable` allows nulls in collections."""

    def inner(part: DataType) -> DataType:
        return map_fields(part, change, nullable=nullable)

    match data_type:
        case StructType():
            return StructType([change(field, inner(field.dataType)) for field in data_type])
        case ArrayType():
            return ArrayType(inner(data_type.elementType), nullable or data_type.containsNull)
        case MapType():
            allows_null = nullable or data_type.valueContainsNull
            return MapType(inner(data_type.keyType), inner(data_type.valueType), allows_null)
    return data_type
