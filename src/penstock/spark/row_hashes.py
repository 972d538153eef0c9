"""Hashes of rows that hold values of any type, as Spark expressions.

Spark's own ``xxhash64`` skips nulls (``(null, 1)`` and ``(1, null)`` hash alike), refuses maps and variants, and takes
strings of a collation by their sort key. Here every value comes with a flag for null, every collection with its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark.jvm import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from penstock.spark.jvm import Bridge

FLOATS = ("DoubleType", "FloatType")
"""The types whose last digits may depend on the order of additions."""
_HASHED = {
    "BooleanType",
    "ByteType",
    "ShortType",
    "IntegerType",
    "LongType",
    "DecimalType",
    "BinaryType",
    "NullType",
    "DateType",
    "TimestampType",
    "TimestampNTZType",
    "TimeType",
    "DayTimeIntervalType",
    "YearMonthIntervalType",
    "CalendarIntervalType",
}
_STRINGS = {"StringType", "CharType", "VarcharType"}
_SHAPES = {"GeometryType", "GeographyType"}
_INFINITY = float("inf")


class UnknownTypeError(PenstockError):
    """A column has a type that no checksum is known for."""


def hash_of(bridge: Bridge, columns: Iterable[tuple[Column, DataType]], seed: int, *, with_floats: bool) -> Column:
    """Return the 64-bit hash of some columns of a row; the order of a map's entries does not matter.

    Parameters
    ----------
    seed
        Hashes of different seeds are independent.
    with_floats
        Whether the values of doubles and floats count. If not, only whether they are null, NaN, or infinite.
        As map keys they always count. All NaN are alike, and so are 0.0 and -0.0.

    Raises
    ------
    UnknownTypeError
        If a type is not known.
    """
    from pyspark.sql import functions as F

    pieces = [piece for column, kind in columns for piece in _pieces(bridge, column, kind, with_floats)]
    return F.xxhash64(F.lit(seed), *pieces)


def floats_of(bridge: Bridge, columns: Sequence[tuple[Column, DataType]], type_name: str) -> Column | None:
    """Return the finite values of a type in some columns, nested ones too, as one array; None if there are no such.

    What is not finite is null in it.
    """
    from pyspark.sql import functions as F

    found = [_floats(bridge, column, kind, type_name) for column, kind in columns]
    arrays = [one for one in found if one is not None]
    return F.concat(*arrays) if arrays else None


def unwrapped(bridge: Bridge, column: Column) -> Column:
    """Return a column of a user-defined type as the type it is stored as (``UnwrapUDT``)."""
    from pyspark.sql import Column

    tools = bridge.find("org.apache.spark.sql.classic.ExpressionUtils")
    handle: Any = column
    return Column(tools.column(bridge.find(EXPRESSIONS + "UnwrapUDT")(tools.expression(handle._jc))))


def _pieces(  # noqa: C901, PLR0911 - a case for each kind of type
    bridge: Bridge,
    column: Column,
    kind: Any,
    with_floats: bool,  # noqa: FBT001
) -> list[Column]:
    """Return columns that Spark can hash; together they tell all that a value is."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import UserDefinedType

    def hashed(value: Column, of: DataType) -> Column:
        return F.xxhash64(*_pieces(bridge, value, of, with_floats))

    name = type(kind).__name__
    if name in _HASHED or (name in FLOATS and with_floats):
        return [column.isNull(), column]
    if name in FLOATS:
        special = F.when(F.isnan(column), 1).when(column == _INFINITY, 2).when(column == -_INFINITY, 3)
        return [column.isNull(), special]
    if name in _STRINGS:
        # By its bytes: two texts that a collation holds for equal are two values all the same.
        return [column.isNull(), column.cast("binary")]
    if name == "VariantType":
        return [column.isNull(), F.to_json(column), F.schema_of_variant(column)]
    if name in _SHAPES:
        return [column.isNull(), F.call_function("st_asbinary", column), F.call_function("st_srid", column)]
    if name == "StructType":
        fields = [_pieces(bridge, column.getField(f.name), f.dataType, with_floats) for f in _fields(kind)]
        return [column.isNull(), *(piece for field in fields for piece in field)]
    if name == "ArrayType":
        elements = F.transform(column, lambda one: hashed(one, kind.elementType))
        return [column.isNull(), F.size(column), elements]
    if name == "MapType":
        entries = F.transform(
            F.map_entries(column),
            lambda one: F.xxhash64(_key(bridge, one, kind), hashed(one.getField("value"), kind.valueType)),
        )
        return [column.isNull(), F.size(column), F.array_sort(entries)]
    if isinstance(kind, UserDefinedType):
        return _pieces(bridge, unwrapped(bridge, column), kind.sqlType(), with_floats)
    raise UnknownTypeError(f"no checksum is known for values of type {kind.simpleString()}")


def _floats(  # noqa: PLR0911 - a case for each kind of type
    bridge: Bridge, column: Column, kind: Any, wanted: str
) -> Column | None:
    """Return the finite floats of a value in an order that depends on what is around them only."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import UserDefinedType

    name = type(kind).__name__
    if name == wanted:
        value = column.cast("double")
        return F.array(F.when(~F.isnan(value) & (F.abs(value) < _INFINITY), value))
    if name == "StructType":
        return floats_of(bridge, [(column.getField(f.name), f.dataType) for f in _fields(kind)], wanted)
    if name == "ArrayType":
        return _each(column, lambda one: _floats(bridge, one, kind.elementType, wanted))
    if name == "MapType":

        def entry(one: Column) -> Column | None:
            values = _floats(bridge, one.getField("value"), kind.valueType, wanted)
            return None if values is None else F.struct(_key(bridge, one, kind).alias("k"), values.alias("f"))

        if entry(column) is None:
            return None
        sorted_entries = F.array_sort(F.transform(F.map_entries(column), lambda one: entry(one)))  # type: ignore[arg-type, return-value] # noqa: PLW0108
        return _each(sorted_entries, lambda one: one.getField("f"))
    if isinstance(kind, UserDefinedType):
        return _floats(bridge, unwrapped(bridge, column), kind.sqlType(), wanted)
    return None


def _each(column: Column, floats: Callable[[Column], Column | None]) -> Column | None:
    from pyspark.sql import functions as F

    if floats(column) is None:
        return None
    found = F.flatten(F.transform(column, floats))  # type: ignore[arg-type]
    return F.coalesce(found, F.array().cast("array<double>"))


def _key(bridge: Bridge, entry: Column, kind: Any) -> Column:
    from pyspark.sql import functions as F

    return F.xxhash64(*_pieces(bridge, entry.getField("key"), kind.keyType, with_floats=True))


def _fields(kind: Any) -> Any:
    names = [field.name.lower() for field in kind.fields]
    if len(names) != len(set(names)):
        raise UnknownTypeError(f"the fields of {kind.simpleString()} cannot be told apart by their names")
    return kind.fields
