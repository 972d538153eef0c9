"""Names of columns: expressions are compared without names, and displayed with them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.graph.stream_graph import StreamNode

_NAMED = re.compile(r"([A-Za-z_]\w*)#(\d+)L?\b")
_NAMELESS = re.compile(r"\bnone#(\d+)L?\b")


def column_names(nodes: Iterable[StreamNode]) -> dict[str, str]:
    """Return the names of columns by their Spark expression ids, from the descriptions of operators."""
    return {number: name for node in nodes for name, number in _NAMED.findall(node.description) if name != "none"}


def readable(text: str, names: Mapping[str, str]) -> str:
    """Return the text of a partitioner with the names of its columns, as far as they are in `names`."""
    return _NAMELESS.sub(lambda match: names.get(match[1], match[0]), text)
