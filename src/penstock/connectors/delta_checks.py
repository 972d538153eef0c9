"""What a Delta table may ask of its writers, and Penstock or deltalake does not do: refused before any work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.connectors.delta_columns import DeltaColumns
from penstock.connectors.table_schema import LENGTH
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable

_PROMISES = ("delta.invariants", "delta.generationExpression", "delta.identity")
"""How the keys begin by which a column's metadata promises something of its values."""
_WRITTEN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
"""The writer features of Delta's protocol that deltalake (1.6) commits to; it refuses others only at the commit."""
_WITHOUT_NAMES = 7
"""The version of the protocol for writers from which a table names the features that it needs; one before has all."""


def check_writable(table: DeltaTable, path: str, mode: str) -> None:
    """Refuse to write to a table whose log promises more of its rows than is looked after here.

    Raises
    ------
    SinkError
        If it does, or if deltalake would refuse the commit.
    """
    lacking = _lacking(table)
    why = _not_kept(table, mode)
    if lacking:
        why = f"its writers must support {', '.join(lacking)}, which deltalake does not"
    elif mode == "overwrite" and str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true":
        raise SinkError(
            f"rows of table {path} cannot be replaced",
            cause="its rows may not be replaced (delta.appendOnly)",
            hint='write it with mode="append", or unset the property',
        )
    if why:
        raise SinkError(f"table {path} cannot be written", cause=why, hint="write it with Delta Lake itself")


def _lacking(table: DeltaTable) -> list[str]:
    """Return the features that the table's writers must support, and deltalake does not."""
    protocol = table.protocol()
    if protocol.min_writer_version == _WITHOUT_NAMES - 1:
        return ["identityColumns"]
    return sorted(set(protocol.writer_features or ()) - _WRITTEN)


def _not_kept(table: DeltaTable, mode: str) -> str | None:
    mapping = DeltaColumns.of(table).mode
    if mapping != "none":
        return f"its columns have other names in its files (column mapping by {mapping})"
    promised = [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
    columns = json.loads(table.schema().to_json())["fields"]
    within = [field for column in columns for field in _within(column["type"])]
    for column in [*columns, *within]:
        promised += [f"{key} of {column['name']}" for key in column["metadata"] if key.startswith(_PROMISES)]
    if mode != "overwrite":  # which gives the table the columns of the new rows; `in_shape_of` sees to those outside
        promised += [
            f"the length {one['metadata'][LENGTH]} of {one['name']}" for one in within if LENGTH in one["metadata"]
        ]
    return f"Penstock does not maintain {promised[0]}" if promised else None


def _within(data_type: Any) -> Iterator[dict[str, Any]]:
    """Return the fields within a type of Delta's schemas."""
    if not isinstance(data_type, dict):
        return
    fields = data_type.get("fields", [])
    yield from fields
    for inner in [field["type"] for field in fields] + [
        data_type.get(f"{part}Type") for part in ("element", "key", "value")
    ]:
        yield from _within(inner)
