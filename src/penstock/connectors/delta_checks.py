"""Checks for features of a Delta table that its writers must support, before any vertex runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.connectors.delta_columns import DeltaColumns
from penstock.connectors.table_schema import LENGTH
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltalake import DeltaTable

_CONSTRAINTS = ("delta.invariants", "delta.generationExpression", "delta.identity")
"""Prefixes of metadata keys that constrain the values of a column."""
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
"""The writer features of Delta's protocol that deltalake (1.6) supports; it rejects others only at the commit."""
_NAMED_FEATURES_VERSION = 7
"""The writer protocol version from which a table lists its features; the version before implies all of them."""


def check_writable(table: DeltaTable, path: str, mode: str) -> None:
    """Reject a table with constraints that Penstock does not enforce.

    Raises
    ------
    SinkError
        If the table has such constraints, or if deltalake would reject the commit.
    """
    unsupported = _unsupported_features(table)
    cause = _unenforced_constraint(table, mode)
    if unsupported:
        cause = f"its writers must support {', '.join(unsupported)}, which deltalake does not"
    elif mode == "overwrite" and str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true":
        raise SinkError(
            f"rows of table {path} cannot be replaced",
            cause="its rows may not be replaced (delta.appendOnly)",
            hint='write it with mode="append", or unset the property',
        )
    if cause:
        raise SinkError(f"table {path} cannot be written", cause=cause, hint="write it with Delta Lake itself")


def _unsupported_features(table: DeltaTable) -> list[str]:
    """Return the writer features that the table requires and deltalake does not support."""
    protocol = table.protocol()
    if protocol.min_writer_version == _NAMED_FEATURES_VERSION - 1:
        return ["identityColumns"]
    return sorted(set(protocol.writer_features or ()) - _WRITTEN)


def _unenforced_constraint(table: DeltaTable, mode: str) -> str | None:
    mapping = DeltaColumns.of(table).mode
    if mapping != "none":
        return f"its columns have other names in its files (column mapping by {mapping})"
    constraints = [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
    columns = json.loads(table.schema().to_json())["fields"]
    nested = [field for column in columns for field in _nested_fields(column["type"])]
    for column in [*columns, *nested]:
        constraints += [f"{key} of {column['name']}" for key in column["metadata"] if key.startswith(_CONSTRAINTS)]
    if mode != "overwrite":  # an overwrite replaces the schema; `in_shape_of` enforces lengths of top-level columns
        constraints += [
            f"the length {field['metadata'][LENGTH]} of {field['name']}"
            for field in nested
            if LENGTH in field["metadata"]
        ]
    return f"Penstock does not maintain {constraints[0]}" if constraints else None


def _nested_fields(data_type: Any) -> Iterator[dict[str, Any]]:
    """Yield the nested fields of a type in Delta's JSON schema."""
    if not isinstance(data_type, dict):
        return
    fields = data_type.get("fields", [])
    yield from fields
    for inner in [field["type"] for field in fields] + [
        data_type.get(f"{part}Type") for part in ("element", "key", "value")
    ]:
        yield from _nested_fields(inner)
