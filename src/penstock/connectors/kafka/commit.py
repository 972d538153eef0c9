"""Commit records of topics: staged records that producers write in transactions."""

from __future__ import annotations

import hashlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit import Prepared
from penstock.commit.names import MARK, check_files, check_path
from penstock.connectors.core.extras import client_key, needs, secrets_for, with_secrets
from penstock.connectors.kafka import client
from penstock.errors import CommitError, SinkError
from penstock.spark.io.files import EVERY_ROW
from penstock.spark.io.filesystem import Folder
from penstock.spark.run.jobs import cluster_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from confluent_kafka import Producer

    from penstock.commit import Access
    from penstock.spark.bridge.jvm import Bridge

WRITTEN = 1
"""The receipt of completely written records. A larger receipt is the claim of a run that writes them in parts."""
_TIMEOUT = 30.0
"""Seconds to wait for the transaction coordinator."""
_TRANSACTION_MILLISECONDS = 900_000
"""The maximum duration of a transaction; the default limit of brokers."""
_STAGED = re.compile(rf"\.penstock-topic-{MARK}")
_RECEIPT_SECONDS = 6 * 24 * 3600.0
"""Seconds for which a receipt certainly exists: by default, brokers retain a group's offsets for seven days, and a day
is reserved for clock differences."""


@dataclass(frozen=True)
class TransactionalTopic:
    """A topic that producers write in transactions; `properties` are those of its clients.

    Receipts are offsets of `topic` in a consumer group. Records without a topic go to `topic`.
    """

    servers: str
    topic: str
    properties: Mapping[str, str] = field(repr=False)

    def producer(self, name: str) -> Producer:
        """Register a producer with a transactional id, which fences earlier producers with the same id.

        Raise `SinkError` if the brokers do not support transactions.
        """
        from confluent_kafka import KafkaException, Producer

        producer = Producer(
            {
                "transaction.timeout.ms": _TRANSACTION_MILLISECONDS,
                **self.properties,
                "bootstrap.servers": self.servers,
                "transactional.id": name,
            }
        )
        try:
            producer.init_transactions(_TIMEOUT)
        except KafkaException as error:
            raise SinkError(
                f"{self.servers} accepts no transactions for topic {self.topic}",
                cause=str(error.args[0]),
                hint="write at least once, without a token, or allow transactions",
            ) from error
        return producer

    def write(self, producer: Producer, records: Iterable[Mapping[str, Any]]) -> int:
        """Write records in the open transaction; return their number. Raise `SinkError` if one is not accepted."""
        errors: list[str] = []
        written = 0

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(str(error))

        for record in records:
            client.put(producer, {"topic": self.topic, **record}, on_delivery)
            written += 1
        producer.flush(_TIMEOUT)
        if errors:
            raise SinkError(f"records were not accepted by {self.servers}", cause=errors[0])
        return written

    def receipt(self, group: str) -> int:
        """Return the receipt of a consumer group; negative if there is none or it has expired."""
        from confluent_kafka import TopicPartition

        with client.consumer(self.servers, {**self.properties, "group.id": group}) as consumer:
            (committed,) = consumer.committed([TopicPartition(self.topic, 0)], _TIMEOUT)
        return int(committed.offset)

    def commit(self, producer: Producer, group: str, receipt: int) -> None:
        """Commit a producer's transaction together with a receipt."""
        from confluent_kafka import TopicPartition

        with client.consumer(self.servers, {**self.properties, "group.id": group}) as consumer:
            offsets = [TopicPartition(self.topic, 0, receipt)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _TIMEOUT)
        producer.commit_transaction(_TIMEOUT)

    def has_token(self, token: str) -> bool:
        """Return whether the topic has the records of a token, unless its receipt has expired."""
        return self.receipt(group_of(token)) == WRITTEN


def group_of(token: str) -> str:
    """Return the consumer group of a token's receipts."""
    return f"penstock-{token}"


@contextmanager
def transaction(producer: Producer) -> Iterator[None]:
    """Begin a transaction for the block, whose last statement has to commit it; abort it if the block fails.

    An open transaction blocks readers of committed records until it ends or times out.
    """
    producer.begin_transaction()
    try:
        yield
    except BaseException:
        with suppress(Exception):  # brokers are unreachable or have committed: the first error is raised
            producer.abort_transaction(_TIMEOUT)
        raise


@dataclass(frozen=True)
class PreparedTopic(Prepared):
    """Commit record of staged records, and of the token whose receipt proves that they are written.

    Records without a topic go to `topic`. The receipt of the token is an offset of a consumer group named after it.
    `properties` are those of the producer without secrets. `prepared_at` is the time of `prepare` in seconds since the
    epoch; None in journals of older releases.
    """

    is_reversible: ClassVar[bool] = False

    servers: str
    topic: str
    token: str
    staging: str
    _: KW_ONLY
    properties: tuple[tuple[str, str], ...] = ()
    prepared_at: float | None = None

    @property
    def target(self) -> str:
        """The topic and its brokers."""
        return f"topic {self.topic} at {self.servers}"

    @property
    def address(self) -> str:
        """The brokers and the user."""
        return client_key(self.servers, dict(self.properties).get("sasl.username"))

    @property
    def folder(self) -> str:
        """The staging folder, as a topic has no folder."""
        return self.staging

    def check_names(self) -> None:
        """Reject a folder that is not a staging folder of topics."""
        check_path(self.staging)
        if _STAGED.fullmatch(self.staging.rpartition("/")[2]) is None:
            raise ValueError(f"{self.staging!r} is not a folder of staged records")

    def ready(self, access: Access) -> None:
        """Register the producer of the token, which fails if the brokers do not support transactions."""
        self._producer(access)

    def is_committed(self, access: Access) -> bool:
        """Return whether the receipt proves that all records are written, after fencing a producer that died.

        Raise `CommitError` if that is unknown, because the receipt may have expired.
        """
        self._producer(access)
        return self._unexpired_receipt(access) == WRITTEN

    def undo(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def _receipt(self, access: Access) -> int:
        return self._destination(access).receipt(group_of(self.token))

    def _unexpired_receipt(self, access: Access) -> int:
        receipt = self._receipt(access)
        if receipt < WRITTEN and self.prepared_at is not None and time.time() - self.prepared_at > _RECEIPT_SECONDS:
            raise CommitError.receipt_expired(self.target, self.staging, _RECEIPT_SECONDS)
        return receipt

    def _producer(self, access: Access) -> Producer:
        """Register the producer of the token, which fences earlier producers of the same name."""
        needs("confluent_kafka", "kafka", SinkError)
        return self._destination(access).producer(f"penstock-{self.topic}:{self.token}")  # topics have no colon

    def _destination(self, access: Access) -> TransactionalTopic:
        properties = with_secrets(self.properties, secrets_for(access, self.address, self.servers))
        return TransactionalTopic(self.servers, self.topic, properties)

    def _claimed_by_another(self) -> SinkError:
        """Return the error of a run while another run is writing the same token in parts."""
        return SinkError(
            f"another run is writing {self.token} to topic {self.topic}, and has not ended",
            cause="some of its records are there for good",
            hint="its commit is completed by the next job that writes to the topic once its process has ended, or by "
            "`penstock recover`; nothing is left to do then",
        )


@dataclass(frozen=True)
class PreparedKafka(PreparedTopic):
    """Commit record of records that are written in a single transaction, together with the receipt."""

    kind: ClassVar[str] = "kafka"

    def commit(self, access: Access) -> None:
        """Write all records and the receipt in a single transaction.

        The producer is registered before the receipt is read, so that other producers that could write it are fenced.
        """
        producer = self._producer(access)
        receipt = self._receipt(access)
        if receipt == WRITTEN:
            return
        if receipt > WRITTEN:
            raise self._claimed_by_another()
        destination = self._destination(access)
        with transaction(producer):
            destination.write(producer, staged_records(access, self.staging))
            destination.commit(producer, group_of(self.token), WRITTEN)


def staged_records(access: Access, staging: str) -> Iterator[dict[str, Any]]:
    """Yield staged records for a producer; they are fetched to the driver partition by partition."""
    rows = access.bridge.spark.read.options(**EVERY_ROW).parquet(staging)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield client.record_of(row.asDict(recursive=True))


@dataclass(frozen=True)
class PartDestination(TransactionalTopic):
    """The destination of the parts of a run."""

    run: str

    def name(self, number: int) -> str:
        """Return the name of a part's producer, and of the consumer group with its receipt."""
        return f"penstock {number}/{self.topic}:{self.run}"  # names of topics have no blanks or slashes


@dataclass(frozen=True)
class PreparedKafkaParts(PreparedTopic):
    """Commit record of records in parts, each of which a Spark task writes in a separate transaction.

    The token's receipt is first the claim of this run, whose records a recovery completes, and at last `WRITTEN`. Each
    part has its own receipt, which its transaction writes, so a repeated part is not written twice. `parts` are the
    files of each part, relative to the staging folder.
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

        Raise `SinkError` if another run has claimed the token, or a record is not accepted.
        """
        producer = self._producer(access)
        receipt = self._receipt(access)
        if receipt == WRITTEN:
            return
        if receipt > WRITTEN and receipt != self._claim:
            raise self._claimed_by_another()
        if receipt < WRITTEN:
            self._write_receipt(access, producer, self._claim)
        destination = PartDestination(self.servers, self.topic, self._destination(access).properties, self.run)
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
            self._destination(access).commit(producer, group_of(self.token), receipt)


def divide_files(files: Iterable[tuple[str, int]], parts: int) -> tuple[tuple[str, ...], ...]:
    """Divide files (names and sizes) into at most `parts` parts of about equal size; the largest files first."""
    groups: list[tuple[int, list[str]]] = [(0, []) for _ in range(parts)]
    for name, size in sorted(files, key=lambda file: (-file[1], file[0])):
        index = min(range(parts), key=lambda part: groups[part][0])
        groups[index] = groups[index][0] + max(size, 1), [*groups[index][1], name]
    return tuple(tuple(names) for _, names in groups if names)


def write_part(destination: PartDestination, number: int, records: Iterable[Mapping[str, Any]]) -> int:
    """Write a part in a transaction unless its receipt exists; return the number of written records."""
    name = destination.name(number)
    producer = destination.producer(name)
    if destination.receipt(name) == WRITTEN:
        return 0
    with transaction(producer):
        written = destination.write(producer, records)
        destination.commit(producer, name, WRITTEN)
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
