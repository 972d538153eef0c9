"""Hashes of rows with values of any type, as Spark expressions.

Spark's own ``xxhash64`` skips nulls (``(null, 1)`` and ``(1, null)`` have equal hashes), rejects maps and variants, and
hashes collated strings by their sort key. These hashes cover a null flag of each value and the size of a collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, UserDefinedType

from penstock.errors import PenstockError
from penstock.spark.bridge.jvm import EXPRESSIONS, Bridge, class_names

FLOATS = ("DoubleType", "FloatType")
"""The types whose last digits may depend on the order of additions."""
_HASHABLE = class_names(
    "BooleanType ByteType ShortType IntegerType LongType DecimalType BinaryType NullType DateType TimestampType "
    "TimestampNTZType TimeType DayTimeIntervalType YearMonthIntervalType CalendarIntervalType"
)
_INFINITY = float("inf")


class UnknownTypeError(PenstockError):
    """A column's type cannot be hashed."""


def row_hash(bridge: Bridge, columns: Iterable[tuple[Column, DataType]], seed: int, *, with_floats: bool) -> Column:
    """Return the 64-bit hash of some columns of a row; the order of a map's entries does not matter.

    Hashes of different seeds are independent. `with_floats` says whether to hash the values of doubles and floats, or
    only whether they are null, NaN or infinite; map keys are always hashed. All NaN values are equal, and so are 0.0
    and -0.0. Raises `UnknownTypeError` if a type is not supported.
    """
    parts = [part for column, data_type in columns for part in _hashable_parts(bridge, column, data_type, with_floats)]
    return F.xxhash64(F.lit(seed), *parts)


def float_arrays(bridge: Bridge, columns: Sequence[tuple[Column, DataType]], type_name: str) -> Column | None:
    """Return the values of a type in some columns, including nested values, as an array of doubles.

    Values that are not finite are null. The result is None if no column has the type or contains it.
    """
    values = [_floats(bridge, column, data_type, type_name) for column, data_type in columns]
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
    data_type: Any,
    with_floats: bool,  # noqa: FBT001
) -> list[Column]:
    """Return columns that ``xxhash64`` supports, and that together determine a value."""

    def hashed(value: Column, of: DataType) -> Column:
        return F.xxhash64(*_hashable_parts(bridge, value, of, with_floats))

    name = type(data_type).__name__
    if name in _HASHABLE or (name in FLOATS and with_floats):
        return [column.isNull(), column]
    if name in FLOATS:
        special = F.when(F.isnan(column), 1).when(column == _INFINITY, 2).when(column == -_INFINITY, 3)
        return [column.isNull(), special]
    if name in {"StringType", "CharType", "VarcharType"}:
        # Hashed by the bytes: strings that a collation treats as equal are different values.
        return [column.isNull(), column.cast("binary")]
    if name == "VariantType":
        return [column.isNull(), F.to_json(column), F.schema_of_variant(column)]
    if name in {"GeometryType", "GeographyType"}:
        return [column.isNull(), F.call_function("st_asbinary", column), F.call_function("st_srid", column)]
    if name == "StructType":
        fields = [_hashable_parts(bridge, column.getField(f.name), f.dataType, with_floats) for f in _fields(data_type)]
        return [column.isNull(), *(part for field in fields for part in field)]
    if name == "ArrayType":
        elements = F.transform(column, lambda element: hashed(element, data_type.elementType))
        return [column.isNull(), F.size(column), elements]
    if name == "MapType":

        def entry_hash(entry: Column) -> Column:
            value_hash = hashed(entry.getField("value"), data_type.valueType)
            return F.xxhash64(_key_hash(bridge, entry, data_type), value_hash)

        entries = F.array_sort(F.transform(F.map_entries(column), entry_hash))
        return [column.isNull(), F.size(column), entries]
    if isinstance(data_type, UserDefinedType):
        return _hashable_parts(bridge, unwrap_udt(bridge, column), data_type.sqlType(), with_floats)
    raise UnknownTypeError(f"values of type {data_type.simpleString()} cannot be hashed")


def _floats(bridge: Bridge, column: Column, data_type: Any, type_name: str) -> Column | None:  # noqa: PLR0911
    """Return all values of `type_name` in a column as an array, in an order independent of them; None without any."""
    name = type(data_type).__name__
    if name == type_name:
        value = column.cast("double")
        return F.array(F.when(~F.isnan(value) & (F.abs(value) < _INFINITY), value))
    if name == "StructType":
        return float_arrays(bridge, [(column.getField(f.name), f.dataType) for f in _fields(data_type)], type_name)
    if name == "ArrayType":
        return _floats_of_elements(column, lambda element: _floats(bridge, element, data_type.elementType, type_name))
    if name == "MapType":

        def entry(element: Column) -> Column | None:
            values = _floats(bridge, element.getField("value"), data_type.valueType, type_name)
            if values is None:
                return None
            return F.struct(_key_hash(bridge, element, data_type).alias("k"), values.alias("f"))

        if entry(column) is None:  # depends only on the type
            return None
        sorted_entries = F.array_sort(F.transform(F.map_entries(column), lambda element: entry(element)))  # type: ignore[arg-type, return-value] # noqa: PLW0108
        return _floats_of_elements(sorted_entries, lambda element: element.getField("f"))
    if isinstance(data_type, UserDefinedType):
        return _floats(bridge, unwrap_udt(bridge, column), data_type.sqlType(), type_name)
    return None


def _floats_of_elements(column: Column, floats: Callable[[Column], Column | None]) -> Column | None:
    if floats(column) is None:  # depends only on the type
        return None
    flattened = F.flatten(F.transform(column, floats))  # type: ignore[arg-type]
    return F.coalesce(flattened, F.array().cast("array<double>"))


def _key_hash(bridge: Bridge, entry: Column, map_type: Any) -> Column:
    return F.xxhash64(*_hashable_parts(bridge, entry.getField("key"), map_type.keyType, with_floats=True))


def _fields(struct_type: Any) -> Any:
    """Return the fields of a struct; raise `UnknownTypeError` if two have equal names, which Spark cannot select."""
    names = [field.name.lower() for field in struct_type.fields]
    if len(names) != len(set(names)):
        raise UnknownTypeError(f"fields of {struct_type.simpleString()} have equal names")
    return struct_type.fields
