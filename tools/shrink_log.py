"""Reduce an event log of Spark to the events and fields that `penstock doctor` reads, for test data.

``python -m tools.shrink_log LOG TARGET.gz``
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from penstock.doctor.log_files import LogFiles
from penstock.doctor.reader import LogReader

_DROPPED = {
    "details",
    "physicalPlanDescription",
    "queryId",
    "Hadoop Properties",
    "JVM Information",
    "System Properties",
    "Classpath Entries",
    "Metrics Properties",
    "Stage Infos",
    "RDD Info",
    "Details",
    "Parent IDs",
    "Task Executor Metrics",
    "Push Based Shuffle",
    "Updated Blocks",
    "Stack Trace",
    "Full Stack Trace",
    "Accumulator Updates",
    "Host",
    "Log Urls",
    "Value",
}
_SETTINGS = ("spark.sql.adaptive", "spark.sql.auto", "spark.sql.shuffle", "spark.sql.execution.id", "spark.task.cpus")
_FOLDERS = re.compile(r"/(?:[\w.-]+/)+")
"""The folders of a path, which say nothing about performance."""


def shrink(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: shrink(item) for key, item in value.items() if key not in _DROPPED}
    if isinstance(value, str):
        return _FOLDERS.sub("/", value)
    if isinstance(value, list):
        return [shrink(item) for item in value if not (isinstance(item, dict) and is_internal(item))]
    return value


def is_internal(accumulable: dict[str, Any]) -> bool:
    """Whether an object is an accumulator other than a metric of SQL."""
    return "ID" in accumulable and "Internal" in accumulable and accumulable.get("Metadata") != "sql"


def shrink_event(event: dict[str, Any]) -> dict[str, Any]:
    for key in ("Spark Properties", "Properties", "modifiedConfigs"):
        if key in event:
            event[key] = {name: text for name, text in event[key].items() if name.startswith(_SETTINGS)}
    return {key: shrink(value) for key, value in event.items() if key not in _DROPPED}


def main(log: str, target: str) -> None:
    lines = [
        json.dumps(shrink_event(event), separators=(",", ":"))
        for event in LogFiles(log).events(LogReader().event_names)
    ]
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write("\n".join(lines).encode() + b"\n")
    print(f"{target}: {Path(target).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
