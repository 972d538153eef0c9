"""The options of the format ``penstock_kafka``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.config.option import DURATION, INT, Option
from penstock.config.options import DATA_VOLUME_PER_TASK, SCAN_INFER_MAX, SCAN_PARALLELISM
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.micro_batches import BatchBounds
from penstock.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "penstock_kafka"
BATCH_INTERVAL = Option(
    "scan.batch-interval",
    DURATION,
    default=None,
    minimum=0.1,
    doc="How long a batch of a stream may take: the interval of its trigger. A batch then holds no more records than "
    "fit in it at the measured pace.",
)
MOST_OFFSETS = Option(
    "maxOffsetsPerTrigger",
    INT,
    default=None,
    minimum=1,
    doc="The most records of a batch of a stream, whatever the pace allows.",
)
_TYPED = {option.key.lower(): option for option in (BATCH_INTERVAL, MOST_OFFSETS, SCAN_PARALLELISM, SCAN_INFER_MAX)}
_REQUIRED = ("kafka.bootstrap.servers", "subscribe")
_SUPPORTED = (*_REQUIRED, "startingoffsets", *_TYPED)
_KAFKA = "kafka."


def source_of(options: Mapping[str, str]) -> KafkaSource:
    """Return the source that options describe.

    Raises
    ------
    SourceError
        If an option is unknown, or the brokers or topics are missing.
    """
    options = _validate(options)
    properties = {
        key.removeprefix(_KAFKA): value
        for key, value in options.items()
        if key.startswith(_KAFKA) and key != "kafka.bootstrap.servers"
    }
    topics = [topic.strip() for topic in options["subscribe"].split(",")]
    start = options.get("startingoffsets", "latest")
    return KafkaSource(options["kafka.bootstrap.servers"], topics, start=start, properties=properties)


def bounds_of(options: Mapping[str, str]) -> BatchBounds:
    """Return the bounds that options set on batches and tasks.

    Raises
    ------
    ConfigError
        If a value is invalid for its option.
    """
    options = _validate(options)
    values = {
        key: option.parse(options[key], f"the options of {FORMAT}") for key, option in _TYPED.items() if key in options
    }

    def number(option: Option) -> int | None:
        value = values.get(option.key.lower())
        return None if value is None else int(str(value))

    interval = values.get(BATCH_INTERVAL.key)
    volume = int(str(DATA_VOLUME_PER_TASK.default))
    return BatchBounds(
        interval=None if interval is None else float(str(interval)),
        most_records=number(MOST_OFFSETS),
        parallelism=number(SCAN_PARALLELISM),
        most_tasks=number(SCAN_INFER_MAX),
        cores=os.cpu_count() or 1,  # of the driver: a Python data source cannot query the cluster
        records_per_task=max(1, volume // KafkaSource.record_bytes),
    )


def _validate(options: Mapping[str, str]) -> dict[str, str]:
    lowercase = {key.lower(): value for key, value in options.items()}
    unknown = [key for key in lowercase if key not in _SUPPORTED and not key.startswith(_KAFKA)]
    if unknown or not set(_REQUIRED) <= lowercase.keys():
        problem = f"unknown option {unknown[0]!r}" if unknown else f"no {' or no '.join(_REQUIRED)}"
        raise SourceError(f"{FORMAT}: {problem}", hint=f"supported are {', '.join(_SUPPORTED)} and kafka.*")
    return lowercase
