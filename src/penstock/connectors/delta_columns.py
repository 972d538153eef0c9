"""The columns of a Delta table: what it calls them, and how its files do (column mapping)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from penstock.connectors.table_schema import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_MODE = "delta.columnMapping.mode"
_PREFIX = "delta.columnMapping."
_NAME, _ID = _PREFIX + "physicalName", _PREFIX + "id"
_FILE_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class DeltaColumns:
    """The columns of a version.

    Parameters
    ----------
    told
        As the log tells them, with the names and numbers that they have in files.
    mode
        How they are found in a file: ``none`` and ``name``, ``id``.
    """

    told: StructType
    mode: str = "none"

    @classmethod
    def of(cls, table: DeltaTable) -> DeltaColumns:
        """Return the columns of a table."""
        from pyspark.sql.types import StructType

        mode = table.metadata().configuration.get(_MODE) or "none"
        return cls(StructType.fromJson(json.loads(table.schema().to_json())), str(mode))

    @property
    def schema(self) -> StructType:
        """The columns as people know them."""
        return self.told if self.mode == "none" else cast("StructType", _named(self.told, physical=False))

    @property
    def in_files(self) -> StructType:
        """The columns by their names in files."""
        return self.told if self.mode == "none" else cast("StructType", _named(self.told, physical=True))

    def in_file(self, column: str) -> str:
        """Return the name that a column has in files, folders and statistics."""
        return _name(self.told[column], physical=self.mode != "none")

    def renamed(self, df: DataFrame) -> DataFrame:
        """Return rows of files with the names of the table; names within a column change with its type."""
        if self.mode == "none":
            return df
        columns = []
        for one, known in zip(self.told, self.schema, strict=True):
            column = df[quoted(_name(one, physical=True))]
            is_nested = df.select(column).schema[0].dataType.simpleString() != known.dataType.simpleString()
            columns.append((column.cast(known.dataType) if is_nested else column).alias(known.name))
        return df.select(columns)

    def places(self, file: pa.Schema, columns: list[str]) -> dict[str, str]:
        """Return where a file has columns: for each that it has the name at its top.

        Raises
        ------
        ValueError
            If columns are found by their numbers, and the file has none.
        """
        if self.mode == "id" and not any(_FILE_ID in (one.metadata or {}) for one in file):
            raise ValueError("a file of a table with column mapping by id has no ids")
        found = {self._key_in_file(one): one.name for one in file}
        keys = {column: self._key(self.told[column]) for column in columns}
        return {column: found[key] for column, key in keys.items() if key in found}

    def in_shape(self, array: pa.Array, field: pa.Field, wanted: pa.Field) -> pa.Array:
        """Return a column of a file as the table has it: what is within it renamed, and null where the file lacks it.

        Parameters
        ----------
        array
            The values.
        field
            The column as the file has it.
        wanted
            The column as Spark expects it.
        """
        if self.mode == "none":
            return array.cast(wanted.type)
        renamed = self._type(field.type, self.told[wanted.name].dataType)
        return (array if renamed == array.type else array.view(renamed)).cast(wanted.type)

    def _key(self, told: StructField) -> str:
        return str(told.metadata[_ID]) if self.mode == "id" else _name(told, physical=self.mode != "none")

    def _key_in_file(self, field: pa.Field) -> str:
        return (field.metadata or {}).get(_FILE_ID, b"").decode() if self.mode == "id" else str(field.name)

    def _type(self, kind: pa.DataType, told: DataType) -> pa.DataType:
        """Return a type of a file with the names that the table has within it."""
        import pyarrow as pa
        from pyspark.sql.types import ArrayType, MapType, StructType

        match told:
            case StructType():
                known = {self._key(one): one for one in told}
                fields = []
                for place, inner in enumerate(kind.fields):
                    one = known.get(self._key_in_file(inner))
                    name = f"unknown {place}" if one is None else one.name
                    fields.append(pa.field(name, inner.type if one is None else self._type(inner.type, one.dataType)))
                return pa.struct(fields)
            case ArrayType():
                return pa.list_(pa.field("element", self._type(kind.value_type, told.elementType)))
            case MapType():
                return pa.map_(self._type(kind.key_type, told.keyType), self._type(kind.item_type, told.valueType))
        return kind


def _name(told: StructField, *, physical: bool) -> str:
    return str(told.metadata.get(_NAME, told.name)) if physical else told.name


def _named(kind: DataType, *, physical: bool) -> DataType:
    """Return a type with the names of the table or of its files, and without what the log tells of both."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType(
                [
                    StructField(
                        _name(one, physical=physical),
                        _named(one.dataType, physical=physical),
                        one.nullable,
                        {key: value for key, value in one.metadata.items() if not key.startswith(_PREFIX)},
                    )
                    for one in kind
                ]
            )
        case ArrayType():
            return ArrayType(_named(kind.elementType, physical=physical), kind.containsNull)
        case MapType():
            key, value = (_named(one, physical=physical) for one in (kind.keyType, kind.valueType))
            return MapType(key, value, kind.valueContainsNull)
    return kind
