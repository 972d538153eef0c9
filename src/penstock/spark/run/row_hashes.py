"""Hashes of rows with values of any type, as Spark expressions.

Spark's own ``xxhash64`` skips nulls (``(null, 1)`` and ``(1, null)`` have equal hashes), rejects maps and variants, and
hashes collated strings by their sort key. Here every value is hashed with a null flag, every collection with its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, UserDefinedType

from penstock.errors import PenstockError
from penstock.spark.bridge.jvm import EXPRESSIONS, Bridge, class_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


FLOATS = ("DoubleType", "FloatType")
"""The types whose last digits may depend on the order of additions."""
_HASHED = class_names(
    "BooleanType ByteType ShortType IntegerType LongType DecimalType BinaryType NullType DateType TimestampType "
    "TimestampNTZType TimeType DayTimeIntervalType YearMonthIntervalType CalendarIntervalType"
)
_INFINITY = float("inf")


class UnknownTypeError(PenstockError):
    """A column's type cannot be hashed."""


def row_hash(bridge: Bridge, columns: Iterable[tuple[Column, DataType]], seed: int, *, with_floats: bool) -> Column:
    """Return the 64-bit hash of some columns of a row; the order of a map's entries does not matter.

    Hashes of different seeds are independent. `with_floats` says whether to hash the values of doubles and floats. If
    not, only whether they are null, NaN, or infinite. Map keys are always hashed. All NaN values are equal, and so are
    0.0 and -0.0. Raises `UnknownTypeError` if a type is not supported.
    """
    parts = [part for column, kind in columns for part in _hashable_parts(bridge, column, kind, with_floats)]
    return F.xxhash64(F.lit(seed), *parts)


def float_arrays(bridge: Bridge, columns: Sequence[tuple[Column, DataType]], type_name: str) -> Column | None:
    """Return the finite values of a type in some columns, including nested values, as an array; None if there are none.

    Values that are not finite are null.
    """
    values = [_floats(bridge, column, kind, type_name) for column, kind in columns]
    arrays = [array for array in values if array is not None]
    return F.concat(*arrays) if arrays else None


def unwrap_udt(bridge: Bridge, column: Column) -> Column:
    """Convert a column of a user-defined type to its storage type (``UnwrapUDT``)."""
    tools = bridge.find("org.apache.spark.sql.classic.ExpressionUtils")
    handle: Any = column
    return Column(tools.column(bridge.find(EXPRESSIONS + "UnwrapUDT")(tools.expression(handle._jc))))


def _hashable_parts(  # noqa: C901, PLR0911 - a case for each kind of type
    bridge: Bridge,
    column: Column,
    kind: Any,
    with_floats: bool,  # noqa: FBT001
) -> list[Column]:
    """Return columns that ``xxhash64`` supports, and that together determine a value."""

    def hashed(value: Column, of: DataType) -> Column:
        return F.xxhash64(*_hashable_parts(bridge, value, of, with_floats))

    name = type(kind).__name__
    if name in _HASHED or (name in FLOATS and with_floats):
        return [column.isNull(), column]
    if name in FLOATS:
        special = F.when(F.isnan(column), 1).when(column == _INFINITY, 2).when(column == -_INFINITY, 3)
        return [column.isNull(), special]
    if name in {"StringType", "CharType", "VarcharType"}:
        # By its bytes: strings that a collation treats as equal are still different values.
        return [column.isNull(), column.cast("binary")]
    if name == "VariantType":
        return [column.isNull(), F.to_json(column), F.schema_of_variant(column)]
    if name in {"GeometryType", "GeographyType"}:
        return [column.isNull(), F.call_function("st_asbinary", column), F.call_function("st_srid", column)]
    if name == "StructType":
        fields = [_hashable_parts(bridge, column.getField(f.name), f.dataType, with_floats) for f in _fields(kind)]
        return [column.isNull(), *(part for field in fields for part in field)]
    if name == "ArrayType":
        elements = F.transform(column, lambda element: hashed(element, kind.elementType))
        return [column.isNull(), F.size(column), elements]
    if name == "MapType":
        entries = F.transform(
            F.map_entries(column),
            lambda element: F.xxhash64(_key(bridge, element, kind), hashed(element.getField("value"), kind.valueType)),
        )
        return [column.isNull(), F.size(column), F.array_sort(entries)]
    if isinstance(kind, UserDefinedType):
        return _hashable_parts(bridge, unwrap_udt(bridge, column), kind.sqlType(), with_floats)
    raise UnknownTypeError(f"values of type {kind.simpleString()} cannot be hashed")


def _floats(bridge: Bridge, column: Column, kind: Any, type_name: str) -> Column | None:  # noqa: PLR0911
    """Return the finite floats of a value, in an order that depends only on the other values."""
    name = type(kind).__name__
    if name == type_name:
        value = column.cast("double")
        return F.array(F.when(~F.isnan(value) & (F.abs(value) < _INFINITY), value))
    if name == "StructType":
        return float_arrays(bridge, [(column.getField(f.name), f.dataType) for f in _fields(kind)], type_name)
    if name == "ArrayType":
        return _each(column, lambda element: _floats(bridge, element, kind.elementType, type_name))
    if name == "MapType":

        def entry(element: Column) -> Column | None:
            values = _floats(bridge, element.getField("value"), kind.valueType, type_name)
            return None if values is None else F.struct(_key(bridge, element, kind).alias("k"), values.alias("f"))

        if entry(column) is None:
            return None
        sorted_entries = F.array_sort(F.transform(F.map_entries(column), lambda element: entry(element)))  # type: ignore[arg-type, return-value] # noqa: PLW0108
        return _each(sorted_entries, lambda element: element.getField("f"))
    if isinstance(kind, UserDefinedType):
        return _floats(bridge, unwrap_udt(bridge, column), kind.sqlType(), type_name)
    return None


def _each(column: Column, floats: Callable[[Column], Column | None]) -> Column | None:
    if floats(column) is None:
        return None
    flattened = F.flatten(F.transform(column, floats))  # type: ignore[arg-type]
    return F.coalesce(flattened, F.array().cast("array<double>"))


def _key(bridge: Bridge, entry: Column, kind: Any) -> Column:
    return F.xxhash64(*_hashable_parts(bridge, entry.getField("key"), kind.keyType, with_floats=True))


def _fields(kind: Any) -> Any:
    names = [field.name.lower() for field in kind.fields]
    if len(names) != len(set(names)):
        raise UnknownTypeError(f"fields of {kind.simpleString()} have equal names")
    return kind.fields
