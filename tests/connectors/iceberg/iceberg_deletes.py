"""Write delete files of Iceberg tables, as a writer with merge-on-read does; pyiceberg reads but never writes them.

A delete file is Parquet with the columns and field ids that the specification reserves; pyiceberg writes the manifest
and commits the snapshot.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

FILE_PATH, POS = "2147483546", "2147483545"


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> Any:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> Any:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> Any:
        return _DeleteManifest(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)


def _commit(table: Any, rows: Any, content: Any, equality_ids: Any = None, partition: Any = ()) -> None:
    path = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    with table.io.new_output(path).create() as out:
        pq.write_table(rows, out)
    delete_file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        column_sizes={},
        value_counts={},
        null_value_counts={},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        equality_ids=equality_ids,
    )
    delete_file.spec_id = table.spec().spec_id
    with table.transaction() as change, _AddDeletes(Operation.DELETE, change, table.io) as snapshot:
        snapshot.append_data_file(delete_file)


def _field(name: Any, kind: Any, number: Any) -> Any:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": number})


def delete_positions(table: Any, positions: Any, partition: Any = ()) -> None:
    """Delete rows by their data file and the positions in it: ``{path: [position]}``."""
    rows_of_files = sorted((path, position) for path, in_file in positions.items() for position in in_file)
    schema = pa.schema([_field("file_path", pa.string(), FILE_PATH), _field("pos", pa.int64(), POS)])
    paths, numbers = zip(*rows_of_files, strict=True)
    rows = pa.table({"file_path": paths, "pos": numbers}, schema=schema)
    _commit(table, rows, DataFileContent.POSITION_DELETES, partition=partition)


def delete_values(table: Any, partition: Any = (), **values: Any) -> None:
    """Delete the rows that equal the i-th values of the columns for any i; in a partition, or in an unpartitioned table."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    fields = [table.schema().find_field(column) for column in values]
    kinds = schema_to_pyarrow(table.schema().select(*values))
    schema = pa.schema(
        [
            pa.field(field.name, kinds.field(field.name).type, metadata={"PARQUET:field_id": str(field.field_id)})
            for field in fields
        ]
    )
    rows = pa.table(dict(values), schema=schema)
    _commit(table, rows, DataFileContent.EQUALITY_DELETES, [field.field_id for field in fields], partition)
