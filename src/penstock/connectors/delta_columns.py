"""The columns of a Delta table: logical names, and physical names in its files (column mapping)."""

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
    """The columns of a version of a Delta table.

    Parameters
    ----------
    log_schema
        The schema in the log, with the physical names and ids in the metadata of its fields.
    mode
        The column mapping mode: columns of a file are matched by name (``none`` and ``name``) or by ``id``.
    """

    log_schema: StructType
    mode: str = "none"

    @classmethod
    def of(cls, table: DeltaTable) -> DeltaColumns:
        """Return the columns of a table."""
        from pyspark.sql.types import StructType

        mode = table.metadata().configuration.get(_MODE) or "none"
        return cls(StructType.fromJson(json.loads(table.schema().to_json())), str(mode))

    @property
    def schema(self) -> StructType:
        """The schema with logical names."""
        return self.log_schema if self.mode == "none" else cast("StructType", _named(self.log_schema, physical=False))

    @property
    def physical_schema(self) -> StructType:
        """The schema with the names in files."""
        return self.log_schema if self.mode == "none" else cast("StructType", _named(self.log_schema, physical=True))

    def physical_name(self, column: str) -> str:
        """Return the name of a column in files, folders and statistics."""
        return _name(self.log_schema[column], physical=self.mode != "none")

    def rename_to_logical(self, df: DataFrame) -> DataFrame:
        """Return rows of files with logical names; nested names are changed by casts."""
        if self.mode == "none":
            return df
        columns = []
        for field, logical in zip(self.log_schema, self.schema, strict=True):
            column = df[quoted(_name(field, physical=True))]
            is_nested = df.select(column).schema[0].dataType.simpleString() != logical.dataType.simpleString()
            columns.append((column.cast(logical.dataType) if is_nested else column).alias(logical.name))
        return df.select(columns)

    def names_in_file(self, file: pa.Schema, columns: list[str]) -> dict[str, str]:
        """Return the top-level names in a file of those columns that the file has.

        Raises
        ------
        ValueError
            If columns are matched by id, and the file has no ids.
        """
        if self.mode == "id" and not any(_FILE_ID in (field.metadata or {}) for field in file):
            raise ValueError("a file of a table with column mapping by id has no ids")
        names = {self._key_in_file(field): field.name for field in file}
        keys = {column: self._key(self.log_schema[column]) for column in columns}
        return {column: names[key] for column, key in keys.items() if key in names}

    def conform(self, array: pa.Array, field: pa.Field, target: pa.Field) -> pa.Array:
        """Return a column of a file in the type of the table: nested fields are renamed, and null if they are missing.

        Parameters
        ----------
        array
            The values.
        field
            The column in the file.
        target
            The column that Spark expects.
        """
        if self.mode == "none":
            return array.cast(target.type)
        renamed = self._rename_nested(field.type, self.log_schema[target.name].dataType)
        return (array if renamed == array.type else array.view(renamed)).cast(target.type)

    def _key(self, field: StructField) -> str:
        return str(field.metadata[_ID]) if self.mode == "id" else _name(field, physical=self.mode != "none")

    def _key_in_file(self, field: pa.Field) -> str:
        return (field.metadata or {}).get(_FILE_ID, b"").decode() if self.mode == "id" else str(field.name)

    def _rename_nested(self, kind: pa.DataType, logged: DataType) -> pa.DataType:
        """Return a type of a file with the logical names of its nested fields."""
        import pyarrow as pa
        from pyspark.sql.types import ArrayType, MapType, StructType

        match logged:
            case StructType():
                by_key = {self._key(field): field for field in logged}
                fields = []
                for index, inner in enumerate(kind.fields):
                    field = by_key.get(self._key_in_file(inner))
                    name = f"unknown {index}" if field is None else field.name
                    renamed = inner.type if field is None else self._rename_nested(inner.type, field.dataType)
                    fields.append(pa.field(name, renamed))
                return pa.struct(fields)
            case ArrayType():
                return pa.list_(pa.field("element", self._rename_nested(kind.value_type, logged.elementType)))
            case MapType():
                key = self._rename_nested(kind.key_type, logged.keyType)
                return pa.map_(key, self._rename_nested(kind.item_type, logged.valueType))
        return kind


def _name(field: StructField, *, physical: bool) -> str:
    return str(field.metadata.get(_NAME, field.name)) if physical else field.name


def _named(kind: DataType, *, physical: bool) -> DataType:
    """Return a type with logical or physical names, and without the metadata of the column mapping."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType(
                [
                    StructField(
                        _name(field, physical=physical),
                        _named(field.dataType, physical=physical),
                        field.nullable,
                        {key: value for key, value in field.metadata.items() if not key.startswith(_PREFIX)},
                    )
                    for field in kind
                ]
            )
        case ArrayType():
            return ArrayType(_named(kind.elementType, physical=physical), kind.containsNull)
        case MapType():
            key, value = (_named(inner, physical=physical) for inner in (kind.keyType, kind.valueType))
            return MapType(key, value, kind.valueContainsNull)
    return kind
