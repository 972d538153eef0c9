"""Making sources of the leaves of a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from penstock.config import table_option
from penstock.config.options import SCAN_INFER_ENABLED, SCAN_INFER_MAX, SCAN_PARALLELISM
from penstock.connectors.base import ParallelismProvider
from penstock.connectors.coordinator import SourceCoordinator
from penstock.connectors.files import FileSource
from penstock.connectors.scan_parallelism import ScanOptions
from penstock.errors import SourceError
from penstock.planner.plan import SourcePlan
from penstock.spark import catalyst, files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config import Configuration, Option
    from penstock.marks import Mark
    from penstock.spark.catalyst import LogicalNode
    from penstock.spark.jvm import Bridge

_NAMES = {
    "LocalRelation": "rows in memory",
    "Range": "range",
    "InMemoryRelation": "cached data",
    "LogicalRDD": "RDD",
    "OneRowRelation": "one row",
}


_TABLE_OPTIONS = [
    key for option in (SCAN_PARALLELISM, SCAN_INFER_ENABLED, SCAN_INFER_MAX) for key in (option.key, *option.aliases)
]


class SourceMaker:
    """Makes sources.

    Parameters
    ----------
    bridge
        The session.
    config
        The job's options; those of a table or reader win.
    """

    def __init__(self, bridge: Bridge, config: Configuration) -> None:
        self._bridge = bridge
        self._config = config

    def make(self, leaf: LogicalNode, scan: LogicalNode, mark: Mark | None) -> SourcePlan:
        """Return the source of a leaf.

        Parameters
        ----------
        leaf
            A node without children.
        scan
            The leaf with the filters right above it.
        mark
            What the user said at this place.

        Raises
        ------
        ConfigError
            If an option of the table has a value that is not allowed.
        """
        is_files = files.is_file_relation(leaf.handle)
        given = mark.source if mark else None
        table_options: Mapping[str, str] = {}
        if is_files:
            name = files.relation_name(leaf.handle)
            table_options = files.relation_options(leaf.handle, _TABLE_OPTIONS)
        else:
            name = _NAMES.get(leaf.name, leaf.name)
        if given is not None:
            name = given.name
        listing = None
        if is_files:
            listing = cache(lambda: files.list_files(self._bridge, self._bridge.session, leaf, scan.handle))
        source: object = given
        if listing is not None and (given is None or isinstance(given, FileSource)):
            source = FileSource(name, listing=listing)
        static = given.parallelism if isinstance(given, ParallelismProvider) else None
        return SourcePlan(
            leaf=leaf,
            coordinator=SourceCoordinator(name, source),
            options=self._options(table_options, name, mark),
            static=static,
            listing=listing,
            size_in_bytes=catalyst.size_in_bytes(leaf.handle),
            scan=scan,
        )

    def narrowed(self, source: SourcePlan, scan: Any) -> SourcePlan:
        """Return a source of files as it is once its rows are filtered further.

        Parameters
        ----------
        source
            The source.
        scan
            The plan of its relation with all filters above it, in the JVM.
        """
        if source.listing is None:
            return source
        listing = cache(lambda: files.list_files(self._bridge, self._bridge.session, source.leaf, scan))
        name = source.coordinator.name
        return replace(source, listing=listing, coordinator=SourceCoordinator(name, FileSource(name, listing=listing)))

    def _options(self, table_options: Mapping[str, str], name: str, mark: Mark | None) -> ScanOptions:
        def value(option: Option) -> object:
            own = table_option(option, table_options, name)
            return self._config.get(option) if own is None else own

        marked = mark.parallelism if mark else None
        parallelism = marked if marked is not None else value(SCAN_PARALLELISM)
        infer_max = value(SCAN_INFER_MAX)
        if parallelism is not None and not isinstance(parallelism, int):
            raise SourceError.bad_parallelism(parallelism, name)
        return ScanOptions(
            parallelism=parallelism,
            infer=value(SCAN_INFER_ENABLED) is True,
            infer_max=infer_max if isinstance(infer_max, int) else None,
        )
