"""Partitions of a table in the catalog, named by their folders, such as ``day=2024-01-01/hour=7``.

Spark's own commands, which its INSERT uses, too, update the catalog in batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.bridge import answers
from penstock.spark.io.filesystem import Folder
from penstock.spark.io.session_catalog import catalog_of, identifier_of
from penstock.spark.run.jobs import active_session

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.bridge.jvm import Bridge

_COMMANDS = "org.apache.spark.sql.execution.command."


@dataclass(frozen=True, slots=True)
class RegisteredPartitions:
    """The partitions of a table that are registered in the catalog."""

    folders: frozenset[str]
    """The default folders for their values, relative to the table's folder."""
    elsewhere: tuple[str, ...]
    """Those of them that have a different location."""


def registered_partitions(bridge: Bridge, name: str, location: str) -> RegisteredPartitions:
    """Return the registered partitions of a table, in a single call."""
    folder, catalog = Folder(bridge, location), catalog_of(bridge)
    table = catalog.getTableMetadata(identifier_of(bridge, name))
    answer = bridge.helper("TablePartitions").folders(catalog, table, folder._hadoop_path, folder._fs)
    facts = answers.facts(answer)
    return RegisteredPartitions(frozenset(facts["folders"]), tuple(facts["elsewhere"]))


def add_partitions(bridge: Bridge, name: str, folders: Iterable[str]) -> None:
    """Register partitions in the catalog; registered partitions are unchanged."""
    lines = "\n".join(folders)
    if lines:
        values = bridge.helper("TablePartitions").valuesAndLocations(lines)
        command = bridge.find(_COMMANDS + "AlterTableAddPartitionCommand")
        with active_session(bridge.session):
            command(identifier_of(bridge, name), values, True).run(bridge.session)


def unregister_partitions(bridge: Bridge, name: str, folders: Iterable[str]) -> None:
    """Remove partitions from the catalog without deleting files; unregistered partitions are ignored."""
    lines = "\n".join(folders)
    if lines:
        values = bridge.helper("TablePartitions").values(lines)
        command = bridge.find(_COMMANDS + "AlterTableDropPartitionCommand")
        with active_session(bridge.session):
            command(identifier_of(bridge, name), values, True, False, True).run(bridge.session)
