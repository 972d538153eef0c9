"""Partitions of a table in the catalog, named by their folders, such as ``day=2024-01-01/hour=7``.

Changes use the commands of Spark's own INSERT, which update the catalog in batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.bridge import answers
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.session_catalog import catalog_of, identifier_of
from penstock.spark.run.jobs import active_session

if TYPE_CHECKING:
    from penstock.spark.bridge.jvm import Bridge

_COMMANDS = "org.apache.spark.sql.execution.command."


@dataclass(frozen=True, slots=True)
class RegisteredPartitions:
    """The partitions of a table that are registered in the catalog."""

    folders: frozenset[str]
    """The default folder of each partition, which its values determine, relative to the table's folder."""
    elsewhere: tuple[str, ...]
    """The default folders of the partitions that are stored in a different folder."""


def registered_partitions(bridge: Bridge, name: str, location: str) -> RegisteredPartitions:
    """Return the registered partitions of a table, in a few calls into the JVM for any number of partitions."""
    folder, catalog = HadoopPath(bridge, location), catalog_of(bridge)
    table = catalog.getTableMetadata(identifier_of(bridge, name))
    answer = bridge.helper("TablePartitions").folders(catalog, table, folder._hadoop_path, folder._fs)
    facts = answers.facts(answer)
    return RegisteredPartitions(frozenset(facts["folders"]), tuple(facts["elsewhere"]))


def add_partitions(bridge: Bridge, name: str, folders: Iterable[str]) -> None:
    """Register partitions in the catalog; partitions that are registered already do not change."""
    lines = "\n".join(folders)
    if lines:
        values = bridge.helper("TablePartitions").values(lines, True)  # each with an empty location, the default
        command = bridge.find(_COMMANDS + "AlterTableAddPartitionCommand")
        with active_session(bridge.session):
            command(identifier_of(bridge, name), values, True).run(bridge.session)  # ifNotExists


def unregister_partitions(bridge: Bridge, name: str, folders: Iterable[str]) -> None:
    """Remove partitions from the catalog without deleting files; partitions that are not registered are ignored."""
    lines = "\n".join(folders)
    if lines:
        values = bridge.helper("TablePartitions").values(lines, False)  # without locations
        command = bridge.find(_COMMANDS + "AlterTableDropPartitionCommand")
        with active_session(bridge.session):
            if_exists, purge, retain_data = True, False, True
            command(identifier_of(bridge, name), values, if_exists, purge, retain_data).run(bridge.session)
