"""Delta tables that deltalake or Penstock cannot write to are refused when the sink is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.services import require_module

require_module("deltalake", "delta")

import deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from penstock.commit import Access
from penstock.connectors import DeltaSink
from penstock.connectors.delta import commit as delta_commit
from penstock.connectors.delta.commit import PreparedDelta, check_writable
from penstock.connectors.tables.commit import MODES
from penstock.errors import SinkError

READER_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
REFUSED = [
    "rowTracking",
    "domainMetadata",
    "inCommitTimestamp",
    "clustering",
    "typeWidening",
    "icebergCompatV1",
    "icebergCompatV2",
    "identityColumns",
    "allowColumnDefaults",
    "collations",
    "a feature of a later release",
]
COLUMN = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def create_table(
    folder: Path,
    features: list[str],
    configuration: dict[str, str] | None = None,
    versions: tuple[int, int] = (3, 7),
    columns: Sequence[dict[str, Any]] = (),
) -> deltalake.DeltaTable:
    """Create a table without rows whose log requires writer features."""
    protocol: dict[str, Any] = {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}
    if versions == (3, 7):
        protocol |= {"readerFeatures": sorted(READER_FEATURES & set(features)), "writerFeatures": features}
    metadata = {
        "id": "t",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": list(columns) or [COLUMN]}),
        "partitionColumns": [],
        "configuration": configuration or {},
        "createdTime": 1,
    }
    log = folder / "_delta_log"
    log.mkdir()
    lines = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))
    return deltalake.DeltaTable(str(folder))


def commit(table: deltalake.DeltaTable) -> None:
    action = AddAction("x.parquet", 1, {}, 1, True, '{"numRecords": 1}')
    table.create_write_transaction([action], "append", table.schema(), [])


@pytest.mark.parametrize("feature", sorted(delta_commit._SUPPORTED_FEATURES))
def test_tables_with_supported_features_can_be_committed_to(tmp_path: Path, feature: str) -> None:
    table = create_table(tmp_path, [feature])
    check_writable(table, "t", "append")
    commit(table)


@pytest.mark.parametrize("feature", REFUSED)
def test_tables_with_unsupported_features_are_refused(tmp_path: Path, feature: str) -> None:
    table = create_table(tmp_path, [feature])
    for mode in MODES:
        with pytest.raises(SinkError, match=f"must support {feature}, which deltalake does not"):
            DeltaSink(str(tmp_path), mode, key="id" if mode == "upsert" else ()).open(None)  # type: ignore[arg-type]
    with pytest.raises(CommitFailedError):
        commit(table)


LENGTH = {"name": "t", "type": "string", "nullable": True, "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}
INVARIANT = {"name": "t", "type": "string", "nullable": True, "metadata": {"delta.invariants": "{}"}}


WITHIN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "a struct": lambda inner: inner,
    "an array": lambda inner: {"type": "array", "elementType": inner, "containsNull": True},
    "a map": lambda inner: {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True},
}


def nested(column: dict[str, Any], within: str) -> dict[str, Any]:
    """Return a column of structs with a single field, in a struct, an array or a map."""
    inner = {"type": "struct", "fields": [column]}
    return {"name": "o", "type": WITHIN[within](inner), "nullable": True, "metadata": {}}


@pytest.mark.parametrize("within", ["the table", *WITHIN])
def test_columns_with_invariants_are_refused(tmp_path: Path, within: str) -> None:
    column = INVARIANT if within == "the table" else nested(INVARIANT, within)
    table = create_table(tmp_path, ["invariants"], columns=[COLUMN, column])
    with pytest.raises(SinkError, match=r"Penstock does not enforce delta.invariants of t"):
        check_writable(table, "t", "append")


@pytest.mark.parametrize("within", ["the table", *WITHIN])
def test_length_limits_in_nested_columns_are_refused(tmp_path: Path, within: str) -> None:
    """Lengths are checked except in nested types; an overwrite replaces the columns."""
    table = create_table(
        tmp_path, ["invariants"], columns=[COLUMN, LENGTH if within == "the table" else nested(LENGTH, within)]
    )
    check_writable(table, "t", "overwrite")
    if within == "the table":
        check_writable(table, "t", "append")
        return
    with pytest.raises(SinkError, match=r"Penstock does not enforce the length varchar\(3\) of t"):
        check_writable(table, "t", "append")


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6])
def test_legacy_writer_versions_up_to_5_are_supported(tmp_path: Path, version: int) -> None:
    table = create_table(tmp_path, [], versions=(1 if version < 5 else 2, version))
    if version == 6:
        with pytest.raises(SinkError, match="identityColumns"):
            check_writable(table, "t", "append")
        with pytest.raises(CommitFailedError):
            commit(table)
    else:
        check_writable(table, "t", "append")
        commit(table)


def test_append_only_tables_are_not_overwritten(tmp_path: Path) -> None:
    table = create_table(tmp_path, ["appendOnly"], {"delta.appendOnly": "true"})
    check_writable(table, "t", "append")
    with pytest.raises(SinkError, match=r"may not be replaced \(delta.appendOnly\)"):
        check_writable(table, "t", "overwrite")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_permanent_commit_error_is_not_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """deltalake raises the same error for a lost race and for a commit that can never succeed."""
    create_table(tmp_path, ["rowTracking"])
    schema = json.dumps({"type": "struct", "fields": [COLUMN]})
    record = PreparedDelta(str(tmp_path), str(tmp_path), mode, schema, (), (), str(tmp_path / "s"), 0, "receipt")
    attempts, write = [], deltalake.DeltaTable.create_write_transaction

    def count_write(*args: Any, **kwargs: Any) -> None:
        attempts.append(mode)
        write(*args, **kwargs)

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", count_write)
    monkeypatch.setattr(delta_commit, "move_files", lambda *_: None)
    with pytest.raises(DeltaError, match="RowTracking"):
        record.commit(Access(None))  # type: ignore[arg-type]
    assert attempts == [mode]
