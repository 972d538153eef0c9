"""What a job has ready for a table of Spark's catalogue: its files, and what the catalogue is told of them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.prepared import Prepared, prepared_of
from penstock.spark.table_writes import create_table, drop_table, find_table, update_statistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.commit.prepared import Access
    from penstock.spark.filesystem import Folder

log = logging.getLogger("penstock.commit")


@dataclass(frozen=True)
class PreparedTable(Prepared):
    """Files of a table, which the catalogue hears of once they are in their places.

    Parameters
    ----------
    table
        The table's name, quoted.
    files
        The record of the files, as JSON knows it.
    statement, schema
        How a new table is made, and the JSON of its columns; empty of a table that is there.
    external
        Whether the user has said where a new table lies.
    partitions
        What the catalogue is told of partitions: statements, of which each may be said again.
    replaced_partitions
        Whether partitions that are gone are to be forgotten.
    """

    kind: ClassVar[str] = "catalog table"
    is_reversible: ClassVar[bool] = True

    table: str
    files: Mapping[str, Any] = field(default_factory=dict)
    statement: str = ""
    schema: str = ""
    external: bool = False
    partitions: tuple[str, ...] = ()
    replaced_partitions: bool = False

    @property
    def _files(self) -> Prepared:
        return prepared_of(self.files)

    @property
    def target(self) -> str:
        """The table."""
        return self.table

    @property
    def is_atomic(self) -> bool:
        """Whether the catalogue has nothing to hear, and the files appear in one step."""
        return not (self.statement or self.partitions or self.replaced_partitions) and self._files.is_atomic

    @property
    def folder(self) -> str | None:
        """The folder of the files."""
        return self._files.folder

    @property
    def replaced(self) -> tuple[str, ...]:
        """As the record of the files says."""
        return self._files.replaced

    @property
    def added(self) -> tuple[str, ...]:
        """As the record of the files says."""
        return self._files.added

    def is_at(self, target: Folder) -> bool:
        """As the record of the files says."""
        return self._files.is_at(target)

    def ready(self, access: Access) -> None:
        """As the record of the files says."""
        self._files.ready(access)

    def commit(self, access: Access) -> None:
        """Put the files into their places, then tell the catalogue."""
        self._files.commit(access)
        self._tell(access)

    def complete(self, access: Access) -> None:
        """As `commit`; files that were removed since stay away."""
        self._files.complete(access)
        self._tell(access)

    def _tell(self, access: Access) -> None:
        from pyspark.sql.types import StructType

        bridge = access.bridge
        if find_table(bridge, self.table) is None:
            if not self.statement:
                log.warning("the catalogue of this session has no table %s; its files are in their places", self.table)
                return
            location = self._files.folder
            assert location is not None
            schema = StructType.fromJson(json.loads(self.schema))
            create_table(bridge, self.statement, schema, location, external=self.external)
        for statement in self.partitions:
            bridge.spark.sql(statement)
        if self.replaced_partitions:
            self._forget_partitions(access)
        update_statistics(bridge, self.table)

    def _forget_partitions(self, access: Access) -> None:
        access.bridge.spark.sql(f"MSCK REPAIR TABLE {self.table} SYNC PARTITIONS")

    def is_committed(self, access: Access) -> bool:
        """Whether the files are in their places, and the catalogue knows the table."""
        known = not self.statement or find_table(access.bridge, self.table) is not None
        return known and self._files.is_committed(access)

    def undo(self, access: Access) -> None:
        """Take a new table out of the catalogue, and the files out of their places."""
        bridge = access.bridge
        table = find_table(bridge, self.table)
        is_ours = table is not None and bool(self.statement) and self._files.is_committed(access)
        if is_ours:
            drop_table(bridge, self.table)
        self._files.undo(access)
        if table is not None and not is_ours and (self.partitions or self.replaced_partitions):
            self._forget_partitions(access)

    def finish(self, access: Access) -> None:
        """As the record of the files says."""
        self._files.finish(access)
