"""Commits to Kafka topics: transactions write the staged records and a receipt (an offset of a consumer group)."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit import Prepared
from penstock.commit.names import STAGING_SUFFIX, check_files, check_path
from penstock.connectors.core.extras import client_key, require_module, secrets_for, with_secrets
from penstock.connectors.core.splits import distribute_evenly
from penstock.connectors.kafka import client
from penstock.errors import CommitError, SinkError
from penstock.spark.io.files import FAIL_ON_UNREADABLE
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.run.jobs import cluster_cores

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer

    from penstock.commit import Access
    from penstock.spark.bridge.jvm import Bridge

ALL_WRITTEN = 1
"""The receipt if all records are written. A larger receipt is the claim of a run that writes the records in parts."""
_TIMEOUT = 30.0
"""Seconds to wait for the transaction coordinator."""
_TRANSACTION_MILLISECONDS = 900_000
"""The maximum duration of a transaction; the default limit of brokers."""
_STAGING_FOLDER = re.compile(rf"\.penstock-topic-{STAGING_SUFFIX}")
_RECEIPT_SECONDS = 6 * 24 * 3600.0
"""Seconds for which a receipt certainly exists: by default, brokers retain the offsets of a group for seven days; a day
is subtracted for clock differences."""


@dataclass(frozen=True)
class TransactionalTopic:
    """A topic to which producers write in transactions; `properties` are those of producers and consumers.

    Receipts are offsets of `topic`, committed for a consumer group. Records without a topic are written to `topic`.
    """

    servers: str
    topic: str
    properties: Mapping[str, str] = field(repr=False)

    def producer(self, name: str) -> Producer:
        """Register a producer with the transactional id `name`, which fences earlier producers with this id.

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
        """Write records in the open transaction; return their number. Raise `SinkError` if any is not accepted."""
        errors: list[str] = []
        record_count = 0

        def on_delivery(error: Any, _message: Any) -> None:
            if error is not None:
                errors.append(str(error))

        for record in records:
            client.put(producer, {"topic": self.topic, **record}, on_delivery)
            record_count += 1
        producer.flush(_TIMEOUT)
        if errors:
            raise SinkError(f"records were not accepted by {self.servers}", cause=errors[0])
        return record_count

    def receipt(self, group: str) -> int:
        """Return the receipt of a consumer group; negative if there is none or it has expired."""
        from confluent_kafka import TopicPartition

        with client.consumer(self.servers, {**self.properties, "group.id": group}) as consumer:
            (committed,) = consumer.committed([TopicPartition(self.topic, 0)], _TIMEOUT)
        return int(committed.offset)

    def commit(self, producer: Producer, group: str, receipt: int) -> None:
        """Write a receipt in a producer's transaction, and commit the transaction."""
        from confluent_kafka import TopicPartition

        with client.consumer(self.servers, {**self.properties, "group.id": group}) as consumer:
            offsets = [TopicPartition(self.topic, 0, receipt)]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _TIMEOUT)
        producer.commit_transaction(_TIMEOUT)

    def has_token(self, token: str) -> bool:
        """Whether the topic has the records of a token; False if the receipt has expired."""
        return self.receipt(group_of(token)) == ALL_WRITTEN


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
        with suppress(Exception):  # the brokers are unreachable, or have committed: the error of the block is raised
            producer.abort_transaction(_TIMEOUT)
        raise


@dataclass(frozen=True)
class PreparedTopic(Prepared):
    """Description of a commit of staged Kafka records, which `token` identifies: the user's token, or a random name.

    Records without a topic are written to `topic`. `properties` are those of the producer without secrets.
    `prepared_at` is the time of `prepare` in seconds since the epoch; None in journals of older releases.
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
        if _STAGING_FOLDER.fullmatch(self.staging.rpartition("/")[2]) is None:
            raise ValueError(f"{self.staging!r} is not a folder of staged records")

    def make_ready(self, access: Access) -> None:
        """Register the producer of the token, which fails if the brokers do not support transactions."""
        self._producer(access)

    def is_committed(self, access: Access) -> bool:
        """Whether the receipt proves that all records are written; the producer of a dead process is fenced first.

        Raise `CommitError` if that is unknown, because the receipt may have expired.
        """
        self._producer(access)
        return self._unexpired_receipt(access) == ALL_WRITTEN

    def undo(self, access: Access) -> None:
        """Remove the staged records."""
        HadoopPath(access.bridge, self.staging).delete()

    finish = undo

    def _receipt(self, access: Access) -> int:
        return self._destination(access).receipt(group_of(self.token))

    def _unexpired_receipt(self, access: Access) -> int:
        """Return the receipt of the token; raise `CommitError` if it may have expired."""
        receipt = self._receipt(access)
        if receipt < ALL_WRITTEN and self.prepared_at is not None and time.time() - self.prepared_at > _RECEIPT_SECONDS:
            days = f"{_RECEIPT_SECONDS / 86400:g} days"
            raise CommitError(
                f"it is unknown whether a job has committed to {self.target}",
                cause=f"it wrote its journal more than {days} ago, and brokers may have removed its receipt, an offset "
                "of a consumer group",
                hint=f"check whether it has the job's records, then remove the journal and {self.staging} by hand",
            )
        return receipt

    def _producer(self, access: Access) -> Producer:
        """Register the producer of the token, which fences earlier producers with the same transactional id."""
        require_module("confluent_kafka", "kafka", SinkError)
        return self._destination(access).producer(f"penstock-{self.topic}:{self.token}")  # topics have no colon

    def _destination(self, access: Access) -> TransactionalTopic:
        properties = with_secrets(self.properties, secrets_for(access, self.address, self.servers))
        return TransactionalTopic(self.servers, self.topic, properties)

    def _claimed_by_another_run_error(self) -> SinkError:
        """Return the error that another run is writing the records of the same token in parts."""
        return SinkError(
            f"another run is writing token {self.token} to topic {self.topic}, and has not ended",
            cause="some of its records are in the topic, and cannot be removed",
            hint="when its process has ended, the next job that writes to the topic completes its commit, or "
            "`penstock recover` does; then nothing is left to do",
        )


@dataclass(frozen=True)
class PreparedKafka(PreparedTopic):
    """Commit of Kafka records that are written in a single transaction, together with the receipt."""

    kind: ClassVar[str] = "kafka"

    def commit(self, access: Access) -> None:
        """Write all records and the receipt in a single transaction.

        Registering the producer before the receipt is read fences other producers that could write the receipt.
        """
        producer = self._producer(access)
        receipt = self._receipt(access)
        if receipt == ALL_WRITTEN:
            return
        if receipt > ALL_WRITTEN:
            raise self._claimed_by_another_run_error()
        destination = self._destination(access)
        with transaction(producer):
            destination.write(producer, staged_records(access, self.staging))
            destination.commit(producer, group_of(self.token), ALL_WRITTEN)


def staged_records(access: Access, staging: str) -> Iterator[dict[str, Any]]:
    """Yield staged records for a producer; the driver fetches them partition by partition."""
    rows = access.bridge.spark.read.options(**FAIL_ON_UNREADABLE).parquet(staging)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield client.record_of(row.asDict(recursive=True))


@dataclass(frozen=True)
class PartDestination(TransactionalTopic):
    """The topic to which the run `run` writes its records in parts, each part in a separate transaction."""

    run: str

    def name(self, number: int) -> str:
        """Return the name of a part's producer, and of the consumer group with its receipt."""
        return f"penstock {number}/{self.topic}:{self.run}"  # names of topics have no blanks or slashes


@dataclass(frozen=True)
class PreparedKafkaParts(PreparedTopic):
    """Commit of Kafka records that Spark tasks write in parts, each part in a separate transaction.

    The token's receipt is first the claim of this run, and `ALL_WRITTEN` when all parts are written. Recovery completes
    a claimed commit. The transaction of each part writes a separate receipt, so a retried part is not written twice.
    `run` is the unique name of the run. `parts` are the files of each part, relative to the staging folder.
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
        """False: readers may see some parts before others, and recovery needs a journal to complete the commit."""
        return False

    def commit(self, access: Access) -> None:
        """Claim the token, write the parts that have no receipt, and write the receipt for all records.

        Raise `SinkError` if another run has claimed the token, or a record is not accepted.
        """
        producer = self._producer(access)
        receipt = self._receipt(access)
        if receipt == ALL_WRITTEN:
            return
        if receipt > ALL_WRITTEN and receipt != self._claim:
            raise self._claimed_by_another_run_error()
        if receipt < ALL_WRITTEN:
            self._write_receipt(access, producer, self._claim)
        destination = PartDestination(self.servers, self.topic, self._destination(access).properties, self.run)
        write_parts(access.bridge, destination, self.staging, self.parts)
        # A new producer writes this receipt: some brokers reject the offsets of a producer's second transaction.
        self._write_receipt(access, self._producer(access), ALL_WRITTEN)

    def has_begun(self, access: Access) -> bool:
        """Whether this run has claimed the token, so that some parts may be written, or all records are written."""
        self._producer(access)  # fences a concurrent claim
        return self._unexpired_receipt(access) in {self._claim, ALL_WRITTEN}

    @property
    def _claim(self) -> int:
        """The receipt by which this run claims the token; unique to the run."""
        digest = hashlib.sha256(self.run.encode()).digest()
        return ALL_WRITTEN + 1 + int.from_bytes(digest[:7])

    def _write_receipt(self, access: Access, producer: Producer, receipt: int) -> None:
        with transaction(producer):
            self._destination(access).commit(producer, group_of(self.token), receipt)


def divide_files(files: Iterable[tuple[str, int]], parts: int) -> tuple[tuple[str, ...], ...]:
    """Divide files (names and sizes) into at most `parts` parts of about equal size, the largest files first."""
    ordered = sorted(files, key=lambda file: (-file[1], file[0]))
    names, sizes = [name for name, _ in ordered], [max(size, 1) for _, size in ordered]
    return tuple(map(tuple, distribute_evenly(names, sizes, parts)))


def write_part(destination: PartDestination, number: int, records: Iterable[Mapping[str, Any]]) -> int:
    """Write part `number` in a transaction unless its receipt exists; return the number of written records."""
    name = destination.name(number)
    producer = destination.producer(name)
    if destination.receipt(name) == ALL_WRITTEN:
        return 0
    with transaction(producer):
        record_count = destination.write(producer, records)
        destination.commit(producer, name, ALL_WRITTEN)
    return record_count


def write_parts(bridge: Bridge, destination: PartDestination, staging: str, parts: tuple[tuple[str, ...], ...]) -> None:
    """Write all parts, each with a Spark task."""
    spark = bridge.spark

    def write(number: int) -> None:
        rows = spark.read.options(**FAIL_ON_UNREADABLE).parquet(*(f"{staging}/{name}" for name in parts[number]))
        rows.coalesce(1).mapInArrow(partial(_write, destination, number), "records bigint").collect()

    # A separate Spark job per part: in a single job, tasks would not know the number of their part.
    with ThreadPoolExecutor(min(len(parts), cluster_cores(bridge)), "penstock-parts") as threads:
        for future in [threads.submit(write, number) for number in range(len(parts))]:
            future.result()


def _write(destination: PartDestination, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    records = (client.record_of(row) for batch in batches for row in batch.to_pylist())
    yield pa.RecordBatch.from_pydict({"records": [write_part(destination, number, records)]})
