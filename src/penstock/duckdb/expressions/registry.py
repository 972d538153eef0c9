"""All entries, and their transfer to the JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock.duckdb.expressions import casts, conditions, dates, json_texts, numbers, strings

if TYPE_CHECKING:
    from penstock.duckdb.expressions.entry import Entry
    from penstock.spark.bridge.jvm import Bridge

FAMILIES: dict[str, tuple[Entry, ...]] = {
    "Strings": strings.ENTRIES,
    "JSON": json_texts.ENTRIES,
    "Numbers": numbers.ENTRIES,
    "Conditions": conditions.ENTRIES,
    "Dates": dates.ENTRIES,
    "Casts": casts.ENTRIES,
}
"""The entries by the type of their operands. The first entry that matches an expression applies."""


def helper(bridge: Bridge, name: str) -> Any:
    """Return a Java class that translates expressions; the first call sends the entries to the JVM."""
    if not bridge.helper("NativeTemplates").isLoaded():
        facts = [entry.facts() for entries in FAMILIES.values() for entry in entries]
        bridge.helper("NativeTemplates").load(json.dumps(facts))
    return bridge.helper(name)
