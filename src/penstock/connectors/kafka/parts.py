"""What a job has ready for a topic in several parts: each is written by a task of Spark, in a transaction of its own.

Once the first receipt is there, the records are claimed for this run: whoever comes next completes them. A part has a
receipt of its own, written by its transaction, so a part that is written again is not there twice.
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
    end_with_receipt,
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
class PartPlace:
    """Where a part goes.

    Parameters
    ----------
    servers, topic
        The brokers, and the topic of records that name none.
    properties
        Further properties of the producer.
    run
        The run that writes.
    """

    servers: str
    topic: str
    properties: Mapping[str, str]
    run: str

    def name(self, number: int) -> str:
        """Return the name of a part's producer, and of the group that holds its receipt."""
        return f"penstock {number}/{self.topic}:{self.run}"  # topics have neither blanks nor slashes


@dataclass(frozen=True)
class PreparedKafkaParts(PreparedTopic):
    """Records in parts; the receipt of the token says first that this run writes them, and at last that it has.

    Parameters
    ----------
    run
        The name of this run.
    parts
        The files of each part, relative to the staging folder.
    """

    kind: ClassVar[str] = "kafka parts"

    run: str
    parts: tuple[tuple[str, ...], ...]

    def check_names(self) -> None:
        """Refuse files outside the staging folder, too."""
        super().check_names()
        check_files(name for names in self.parts for name in names)

    @property
    def is_atomic(self) -> bool:
        """False: readers may see some parts before others, and a journal tells which are left."""
        return False

    def commit(self, access: Access) -> None:
        """Claim the token, write the parts that have no receipt, and say that all are written.

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
            self._tell(access, producer, self._claim)
        place = PartPlace(self.servers, self.topic, self._properties(access), self.run)
        write_parts(access.bridge, place, self.staging, self.parts)
        # By another producer: not every broker takes the offsets of the second transaction of one.
        self._tell(access, self._producer(access), WRITTEN)

    def has_begun(self, access: Access) -> bool:
        """Whether this run has claimed the token: some parts may be there."""
        self._producer(access)  # a claim that is under way is fenced
        return self._receipt_for_certain(access) in {self._claim, WRITTEN}

    @property
    def _claim(self) -> int:
        """The receipt that says that this run writes the records; no other run has it."""
        digest = hashlib.sha256(self.run.encode()).digest()
        return WRITTEN + 1 + int.from_bytes(digest[:7])

    def _tell(self, access: Access, producer: Producer, receipt: int) -> None:
        """Write the receipt of the token."""
        with transaction(producer):
            self._end(access, producer, receipt)


def dealt(files: Iterable[tuple[str, int]], parts: int) -> tuple[tuple[str, ...], ...]:
    """Return files in at most so many parts of about equal bytes; the largest are dealt first."""
    found: list[tuple[int, list[str]]] = [(0, []) for _ in range(parts)]
    for name, size in sorted(files, key=lambda file: (-file[1], file[0])):
        place = min(range(parts), key=lambda one: found[one][0])
        found[place] = found[place][0] + max(size, 1), [*found[place][1], name]
    return tuple(tuple(names) for _, names in found if names)


def write_part(place: PartPlace, number: int, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a part in a transaction, unless it has its receipt; return how many records were written.

    Raises
    ------
    SinkError
        If a record is not accepted.
    """
    name = place.name(number)
    producer = producer_of(place.servers, place.properties, name, place.topic)
    if receipt_of(place.servers, place.properties, name, place.topic) == WRITTEN:
        return 0
    with transaction(producer):
        written = write_records(producer, records, place.servers, place.topic)
        end_with_receipt(producer, place.servers, place.properties, name, place.topic, WRITTEN)
    return written


def write_parts(bridge: Bridge, place: PartPlace, staging: str, parts: tuple[tuple[str, ...], ...]) -> None:
    """Write all parts, each by a task of Spark."""
    spark = bridge.spark

    def write(number: int) -> None:
        rows = spark.read.options(**EVERY_ROW).parquet(*(f"{staging}/{name}" for name in parts[number]))
        rows.coalesce(1).mapInArrow(partial(_write, place, number), "records bigint").collect()

    # A job for each part: of one job, Spark would not say which of its tasks has which part.
    with ThreadPoolExecutor(min(len(parts), cluster_cores(bridge)), "penstock-parts") as threads:
        for done in [threads.submit(write, number) for number in range(len(parts))]:
            done.result()


def _write(place: PartPlace, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    records = (client.record_of(row) for batch in batches for row in batch.to_pylist())
    yield pa.RecordBatch.from_pydict({"records": [write_part(place, number, records)]})
