"""Columns in the words of people: expressions are compared without names, and shown with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.graph.stream_graph import StreamNode

_NAMED = re.compile(r"([A-Za-z_]\w*)#(\d+)L?\b")
_NAMELESS = re.compile(r"\bnone#(\d+)L?\b")


def column_names(nodes: Iterable[StreamNode]) -> dict[str, str]:
    """Return the names of columns by the numbers Spark gives them, as the operators' descriptions tell."""
    return {number: name for node in nodes for name, number in _NAMED.findall(node.description) if name != "none"}


def readable(text: str, names: Mapping[str, str]) -> str:
    """Return a partitioner's text with the names of its columns, where they are known."""
    return _NAMELESS.sub(lambda found: names.get(found[1], found[0]), text)
