"""Write Delta tables with features that ``deltalake`` reads but never writes: log, files and deletion vectors."""

from __future__ import annotations

import base64
import json
import struct
import uuid
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.support.services import require_module

require_module("pyroaring", "iceberg")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

_MAGIC = 1681511377
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(data: bytes) -> str:
    return base64.b85encode(data, pad=True).translate(bytes.maketrans(_B85, _Z85)).decode()


def deletion_vector(folder: Path, rows: Iterable[int], storage: str) -> dict[str, Any]:
    """Return the log entry of a deletion vector; `storage` is "u" (file by UUID), "p" (file by path) or "i" (inline)."""
    bitmap = BitMap64(rows)
    data = struct.pack("<i", _MAGIC) + bitmap.serialize()
    descriptor = {"storageType": storage, "sizeInBytes": len(data), "cardinality": len(bitmap)}
    if storage == "i":
        return descriptor | {"pathOrInlineDv": _z85(data + bytes(-len(data) % 4))}
    number = uuid.uuid4()
    prefix = "ab" if storage == "u" else ""
    file = folder / prefix / f"deletion_vector_{number}.bin"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"\x01" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    return descriptor | {
        "pathOrInlineDv": prefix + _z85(number.bytes) if storage == "u" else f"file://{file}",
        "offset": 1,
    }


class DeltaLog:
    """A table whose log is written by hand.

    Parameters
    ----------
    schema
        The fields in the JSON format of the log.
    configuration
        The table's properties.
    features
        The reader and writer features of the protocol.
    """

    def __init__(
        self,
        folder: Path,
        schema: list[dict[str, Any]],
        partition_by: list[str],
        configuration: dict[str, str],
        features: list[str],
    ) -> None:
        self.folder = folder
        self.version = 0
        (folder / "_delta_log").mkdir(parents=True)
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
        self.commit(
            {"protocol": protocol},
            {
                "metaData": {
                    "id": str(uuid.uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": schema}),
                    "partitionColumns": partition_by,
                    "configuration": configuration,
                    "createdTime": 0,
                }
            },
        )

    def commit(self, *actions: dict[str, Any]) -> None:
        """Write the next version."""
        file = self.folder / "_delta_log" / f"{self.version:020}.json"
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        self.version += 1

    def add(self, rows: pa.Table, partition: dict[str, str | None], folder: str = "") -> dict[str, Any]:
        """Write a file with row groups of 7 rows, and return its `add` action."""
        path = f"{folder}{'/' if folder else ''}part-{uuid.uuid4()}.parquet"
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, self.folder / path, row_group_size=7)
        integer_columns = [name for name in rows.column_names if pa.types.is_integer(rows.schema.field(name).type)]
        statistics = {
            "numRecords": rows.num_rows,
            "minValues": {name: pa.compute.min(rows[name]).as_py() for name in integer_columns},
            "maxValues": {name: pa.compute.max(rows[name]).as_py() for name in integer_columns},
            "nullCount": {name: rows[name].null_count for name in rows.column_names},
        }
        return {
            "path": quote(path, safe="/="),
            "partitionValues": partition,
            "size": (self.folder / path).stat().st_size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(statistics),
        }

    def delete(self, added: dict[str, Any], rows: Iterable[int], storage: str = "u") -> None:
        """Delete rows of a file by their positions; they replace the positions of the last call."""
        remove = {key: added[key] for key in ("path", "partitionValues", "size", "dataChange")} | {
            "deletionTimestamp": 0,
            "extendedFileMetadata": True,
        }
        if "deletionVector" in added:
            remove["deletionVector"] = added["deletionVector"]
        statistics = json.loads(added["stats"]) | {"tightBounds": False}
        added |= {"deletionVector": deletion_vector(self.folder, rows, storage), "stats": json.dumps(statistics)}
        self.commit({"remove": remove}, {"add": added})


def rows_by_kernel(folder: Path, columns: str = "*") -> list[dict[str, Any]]:
    """Return all rows as deltalake's reader (Delta Kernel and DataFusion) reads them."""
    batches = QueryBuilder().register("t", DeltaTable(str(folder))).execute(f"select {columns} from t").read_all()
    return pa.table(batches).to_pylist()
