"""Partitions that the catalogue knows of a table, named by their folders, such as ``day=2024-01-01/hour=7``.

Uses (Spark 4.0 to 4.3): ``SessionCatalog.listPartitions``, ``AlterTableAddPartitionCommand``,
``AlterTableDropPartitionCommand``, which Spark's own INSERT uses too: they tell the catalogue in batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark import answers
from penstock.spark.filesystem import Folder
from penstock.spark.jobs import active_session
from penstock.spark.session_catalog import catalog_of, identifier_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.jvm import Bridge

_COMMANDS = "org.apache.spark.sql.execution.command."


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The partitions of a table that the catalogue knows.

    Parameters
    ----------
    folders
        Where their values say that they lie, relative to the table's folder.
    elsewhere
        Those of them that lie in another place.
    """

    folders: frozenset[str]
    elsewhere: tuple[str, ...]


def known_partitions(bridge: Bridge, name: str, location: str) -> KnownPartitions:
    """Return what the catalogue knows of a table's partitions, in one call.

    Parameters
    ----------
    name, location
        The table, and its folder.
    """
    folder, catalog = Folder(bridge, location), catalog_of(bridge)
    table = catalog.getTableMetadata(identifier_of(bridge, name))
    answer = bridge.helper("TablePartitions").known(catalog, table, folder._hadoop_path, folder._fs)
    facts = answers.facts(answer)
    return KnownPartitions(frozenset(facts["folders"]), tuple(facts["elsewhere"]))


def add_partitions(bridge: Bridge, name: str, folders: Iterable[str]) -> None:
    """Let the catalogue know partitions; those that it knows stay as they are."""
    told = "\n".join(folders)
    if told:
        values = bridge.helper("TablePartitions").valuesAndPlaces(told)
        command = bridge.find(_COMMANDS + "AlterTableAddPartitionCommand")
        with active_session(bridge.session):
            command(identifier_of(bridge, name), values, True).run(bridge.session)


def forget_partitions(bridge: Bridge, name: str, folders: Iterable[str]) -> None:
    """Let the catalogue forget partitions; no file is removed, and those that it does not know are fine."""
    told = "\n".join(folders)
    if told:
        values = bridge.helper("TablePartitions").values(told)
        command = bridge.find(_COMMANDS + "AlterTableDropPartitionCommand")
        with active_session(bridge.session):
            command(identifier_of(bridge, name), values, True, False, True).run(bridge.session)
