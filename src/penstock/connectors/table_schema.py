"""Rows that are appended to a table with columns of its own: checked before any work, and brought into its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}
"""What holds every value of a type, so that a cast to it changes none."""

LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of a column's metadata by which Spark keeps that a column of texts is a char or a varchar."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The names of a table's columns, by which the columns of rows are found.

    Parameters
    ----------
    names
        The names.
    where
        The table, for messages.
    is_case_sensitive
        Whether their case matters (``spark.sql.caseSensitive``).
    """

    names: Sequence[str]
    where: str
    is_case_sensitive: bool

    def of(self, rows: StructType) -> list[str]:
        """Return for each column of some rows what the table calls it.

        Raises
        ------
        SinkError
            If the table has no such column, or rows have it twice.
        """
        folded = {} if self.is_case_sensitive else {name.lower(): name for name in self.names}
        found: list[str] = []
        for given in rows.fieldNames():
            name = given if given in self.names else folded.get(given.lower())
            if name is None or name in found:
                problem = "twice" if name else "that the table does not have"
                raise SinkError(
                    f"the rows for {self.where} have a column {given} {problem}",
                    cause=f"its columns are {', '.join(self.names)}",
                    hint=f"drop the column, as in df.drop({given!r}), or write to another table",
                )
            found.append(name)
        return found


def check_columns(rows: StructType, table: StructType, where: str, *, case_sensitive: bool) -> None:
    """Refuse rows that a table cannot hold as they are.

    Columns are found by name; one that the rows do not have is null. A null in a column that allows none is found when
    the rows are written.

    Parameters
    ----------
    rows, table
        The columns of both.
    where
        The table, for messages.
    case_sensitive
        Whether the case of names matters (``spark.sql.caseSensitive``).

    Raises
    ------
    SinkError
        If a column has another type, is not in the table, or is missing and may not be null.
    """
    found = _columns(rows, table, where, case_sensitive=case_sensitive)
    for field in table:
        given = found.get(field.name)
        if given is None:
            if not field.nullable:
                raise SinkError(
                    f"the rows for {where} have no column {field.name}",
                    cause="the table does not allow nulls in it",
                    hint="add the column",
                )
        elif not _fits(given.dataType, field.dataType):
            name, wanted = given.dataType.simpleString(), field.dataType.simpleString()
            raise SinkError(
                f"column {given.name} for {where} is of type {name}, and the table's is of type {wanted}",
                cause="nulls within it are not allowed" if name == wanted else "files of both could not be read",
                hint=f"cast it, as in df.withColumn({given.name!r}, ...cast({wanted!r})), or write to another table",
            )


def in_shape_of(df: DataFrame, table: StructType, where: str, *, case_sensitive: bool) -> DataFrame:
    """Return rows with the columns of a table, once `check_columns` has let them pass."""
    from pyspark.sql import functions as F

    found = _columns(df.schema, table, where, case_sensitive=case_sensitive)

    def column(field: StructField) -> Column:
        given = found.get(field.name)
        if given is None:
            return F.lit(None).cast(field.dataType)
        value = df[quoted(given.name)]
        if given.dataType.simpleString() != field.dataType.simpleString():
            value = value.cast(field.dataType)
        if given.nullable and not field.nullable:
            value = F.coalesce(value, F.raise_error(f"column {field.name} of {where} does not allow nulls"))
        length = field.metadata.get(LENGTH)
        return value if length is None else _of_length(value, str(length), f"column {field.name} of {where}")

    return df.select([column(field).alias(field.name) for field in table])


def _of_length(text: Column, kind: str, where: str) -> Column:
    """Return texts as Spark stores them in a char or varchar: padded, or cut where only spaces are too many."""
    from pyspark.sql import functions as F

    name, _, rest = kind.partition("(")
    most = int(rest.rstrip(")"))
    stored = F.rpad(text, most, " ") if name == "char" else F.substring(text, 1, most)
    return F.when(F.length(F.rtrim(text)) > most, F.raise_error(f"{where} takes {most} characters")).otherwise(stored)


def quoted(name: str) -> str:
    """Return a column's name as Spark finds it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def as_nullable(schema: StructType) -> StructType:
    """Return the schema of a new table: every column may be null, as in the tables that Spark makes of rows."""
    return cast("StructType", _nullable(schema))


def _columns(rows: StructType, table: StructType, where: str, *, case_sensitive: bool) -> dict[str, StructField]:
    """Return the columns of rows by the names that the table has for them."""
    return dict(zip(TableColumns(table.fieldNames(), where, case_sensitive).of(rows), rows, strict=True))


def _fits(given: DataType, wanted: DataType) -> bool:
    """Whether a type is the table's own or one whose values it holds, and no null can be where none is allowed."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match given, wanted:
        case StructType(), StructType():
            return given.fieldNames() == wanted.fieldNames() and all(
                _same(one.dataType, other.dataType) and other.nullable >= one.nullable
                for one, other in zip(given, wanted, strict=True)
            )
        case ArrayType(), ArrayType():
            return wanted.containsNull >= given.containsNull and _same(given.elementType, wanted.elementType)
        case MapType(), MapType():
            values = wanted.valueContainsNull >= given.valueContainsNull and _same(given.valueType, wanted.valueType)
            return values and _same(given.keyType, wanted.keyType)
    return given == wanted or wanted.simpleString() in _WIDER.get(given.simpleString(), ())


def _same(given: DataType, wanted: DataType) -> bool:
    return given.simpleString() == wanted.simpleString() and _fits(given, wanted)


def _nullable(kind: DataType) -> DataType:
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(one.name, _nullable(one.dataType), True, one.metadata) for one in kind])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), True)
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind
