"""Commit record of a topic in several parts, each of which a Spark task writes in a separate transaction.

The first receipt of the token claims the records for this run; a recovery completes them. Each part has its own
receipt, which its transaction writes, so a repeated part is not written twice.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit.names import check_files
from penstock.connectors.kafka import client
from penstock.connectors.kafka.commit import PreparedTopic
from penstock.connectors.kafka.transactions import (
    WRITTEN,
    claimed_by_another,
    commit_with_receipt,
    producer_of,
    receipt_of,
    transaction,
    write_records,
)
from penstock.spark.files import EVERY_ROW
from penstock.spark.jobs import cluster_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from confluent_kafka import Producer

    from penstock.commit import Access
    from penstock.spark.jvm import Bridge


@dataclass(frozen=True)
class PartDestination:
    """The destination of the parts of a run.

    Parameters
    ----------
    servers, topic
        The brokers, and the default topic of records.
    properties
        Further properties of the producer.
    run
        The name of the run.
    """

    servers: str
    topic: str
    properties: Mapping[str, str]
    run: str

    def name(self, number: int) -> str:
        """Return the name of a part's producer, and of the consumer group with its receipt."""
        return f"penstock {number}/{self.topic}:{self.run}"  # names of topics have no blanks or slashes


@dataclass(frozen=True)
class PreparedKafkaParts(PreparedTopic):
    """Commit record of records in parts; the token's receipt is first the claim of this run, and at last `WRITTEN`.

    Parameters
    ----------
    run
        The name of the run.
    parts
        The files of each part, relative to the staging folder.
    """

    kind: ClassVar[str] = "kafka parts"

    run: str
    parts: tuple[tuple[str, ...], ...]

    def check_names(self) -> None:
        """Also reject files outside the staging folder."""
        super().check_names()
        check_files(name for names in self.parts for name in names)

    @property
    def is_atomic(self) -> bool:
        """False: readers may see some parts before others; a journal is needed to complete them."""
        return False

    def commit(self, access: Access) -> None:
        """Claim the token, write the parts without a receipt, and mark all records as written.

        Raises
        ------
        SinkError
            If another run has claimed the token, or a record is not accepted.
        """
        producer = self._producer(access)
        receipt = self._receipt(access)
        if receipt == WRITTEN:
            return
        if receipt > WRITTEN and receipt != self._claim:
            raise claimed_by_another(self.topic, self.token)
        if receipt < WRITTEN:
            self._write_receipt(access, producer, self._claim)
        destination = PartDestination(self.servers, self.topic, self._properties(access), self.run)
        write_parts(access.bridge, destination, self.staging, self.parts)
        # With a new producer: some brokers reject the offsets of a producer's second transaction.
        self._write_receipt(access, self._producer(access), WRITTEN)

    def has_begun(self, access: Access) -> bool:
        """Return whether this run has claimed the token, so that some parts may be written."""
        self._producer(access)  # fences a concurrent claim
        return self._unexpired_receipt(access) in {self._claim, WRITTEN}

    @property
    def _claim(self) -> int:
        """The receipt by which this run claims the records, unique to the run."""
        digest = hashlib.sha256(self.run.encode()).digest()
        return WRITTEN + 1 + int.from_bytes(digest[:7])

    def _write_receipt(self, access: Access, producer: Producer, receipt: int) -> None:
        with transaction(producer):
            self._end(access, producer, receipt)


def divide_files(files: Iterable[tuple[str, int]], parts: int) -> tuple[tuple[str, ...], ...]:
    """Divide files (names and sizes) into at most `parts` parts of about equal size; the largest files first."""
    groups: list[tuple[int, list[str]]] = [(0, []) for _ in range(parts)]
    for name, size in sorted(files, key=lambda file: (-file[1], file[0])):
        index = min(range(parts), key=lambda part: groups[part][0])
        groups[index] = groups[index][0] + max(size, 1), [*groups[index][1], name]
    return tuple(tuple(names) for _, names in groups if names)


def write_part(destination: PartDestination, number: int, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a part in a transaction unless its receipt exists; return the number of written records.

    Raises
    ------
    SinkError
        If a record is not accepted.
    """
    name = destination.name(number)
    producer = producer_of(destination.servers, destination.properties, name, destination.topic)
    if receipt_of(destination.servers, destination.properties, name, destination.topic) == WRITTEN:
        return 0
    with transaction(producer):
        written = write_records(producer, records, destination.servers, destination.topic)
        commit_with_receipt(producer, destination.servers, destination.properties, name, destination.topic, WRITTEN)
    return written


def write_parts(bridge: Bridge, destination: PartDestination, staging: str, parts: tuple[tuple[str, ...], ...]) -> None:
    """Write all parts, each with a Spark task."""
    spark = bridge.spark

    def write(number: int) -> None:
        rows = spark.read.options(**EVERY_ROW).parquet(*(f"{staging}/{name}" for name in parts[number]))
        rows.coalesce(1).mapInArrow(partial(_write, destination, number), "records bigint").collect()

    # A separate job per part: in a common job, tasks would not know the number of their part.
    with ThreadPoolExecutor(min(len(parts), cluster_cores(bridge)), "penstock-parts") as threads:
        for future in [threads.submit(write, number) for number in range(len(parts))]:
            future.result()


def _write(destination: PartDestination, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    records = (client.record_of(row) for batch in batches for row in batch.to_pylist())
    yield pa.RecordBatch.from_pydict({"records": [write_part(destination, number, records)]})
