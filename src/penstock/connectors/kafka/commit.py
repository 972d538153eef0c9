"""What a job has ready for a topic: staged records, which one transaction of a producer writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit import Prepared
from penstock.connectors.extras import address_of, given_for, needs, with_secrets
from penstock.connectors.kafka import client
from penstock.errors import SinkError
from penstock.spark.files import EVERY_ROW
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confluent_kafka import Producer

    from penstock.commit import Access

_PATIENCE = 30.0
"""Seconds to wait for the coordinator of transactions."""
_LONGEST = 900_000
"""Milliseconds that a transaction may take; as many as brokers allow where nobody has changed that."""


@dataclass(frozen=True)
class PreparedKafka(Prepared):
    """Records that are in no topic yet.

    Parameters
    ----------
    servers
        The brokers.
    topic
        The topic of records that name none.
    token
        The name of what is written; the receipt is an offset of the consumer group of that name, committed by the same
        transaction.
    staging
        Where the records lie.
    properties
        Further properties of the producer, but for secrets.
    """

    kind: ClassVar[str] = "kafka"
    is_reversible: ClassVar[bool] = False

    servers: str
    topic: str
    token: str
    staging: str
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def target(self) -> str:
        """The topic and its brokers."""
        return f"topic {self.topic} at {self.servers}"

    @property
    def address(self) -> str:
        """The brokers, and the user."""
        return address_of(self.servers, dict(self.properties).get("sasl.username"))

    @property
    def folder(self) -> str:
        """The staging folder, as a topic is none."""
        return self.staging

    def ready(self, access: Access) -> None:
        """Begin as the producer of the token: brokers without transactions refuse that."""
        self._producer(access)

    def commit(self, access: Access) -> None:
        """Write all records, and the receipt, in one transaction.

        The producer that writes is there before the receipt is looked for: whoever could still write it is fenced.
        """
        producer = self._producer(access)
        receipt = self._receipt(access)
        if receipt == WRITTEN:
            return
        if receipt > WRITTEN:
            raise claimed_by_another(self.topic, self.token)
        write_in_transaction(producer, staged_records(access, self.staging), self.servers, self.topic)
        end_with_receipt(producer, self.servers, self._properties(access), group_of(self.token), self.topic, WRITTEN)

    def is_committed(self, access: Access) -> bool:
        """Whether the receipt is there; a transaction of a dead producer is ended first."""
        self._producer(access)
        return self._receipt(access) == WRITTEN

    def _receipt(self, access: Access) -> int:
        return receipt_of(self.servers, self._properties(access), group_of(self.token), self.topic)

    def undo(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def _producer(self, access: Access) -> Producer:
        needs("confluent_kafka", "kafka", SinkError)
        return producer_of(self.servers, self._properties(access), id_of(self.topic, self.token), self.topic)

    def _properties(self, access: Access) -> dict[str, str]:
        return with_secrets(self.properties, given_for(access, self.address, self.servers))


def id_of(topic: str, token: str) -> str:
    """Return the name of the producer that writes a token's receipt; a later one of that name fences it."""
    return f"penstock-{topic}:{token}"  # topics have no colon


def producer_of(servers: str, properties: Mapping[str, str], name: str, topic: str) -> Producer:
    """Begin as the producer of a name: earlier ones of that name can do nothing any more.

    Raises
    ------
    SinkError
        If the brokers accept no transactions.
    """
    from confluent_kafka import KafkaException, Producer

    made = Producer(
        {
            "transaction.timeout.ms": _LONGEST,
            **properties,
            "bootstrap.servers": servers,
            "transactional.id": name,
        }
    )
    try:
        made.init_transactions(_PATIENCE)
    except KafkaException as error:
        raise SinkError(
            f"{servers} accepts no transactions for topic {topic}",
            cause=str(error.args[0]),
            hint="write at least once, without a token, or allow transactions",
        ) from error
    return made


def write_in_transaction(producer: Producer, records: Iterable[Mapping[str, Any]], servers: str, topic: str) -> int:
    """Write records in a transaction, which stays open; return how many.

    Raises
    ------
    SinkError
        If one was not accepted; none stays then.
    """
    producer.begin_transaction()
    refused: list[str] = []
    written = 0
    for record in records:
        client.put(producer, {"topic": topic, **record}, refused)
        written += 1
    producer.flush(_PATIENCE)
    if refused:
        producer.abort_transaction(_PATIENCE)
        raise SinkError(f"records were not accepted by {servers}", cause=refused[0])
    return written


WRITTEN = 1
"""The receipt of records that are all there. A larger one is the claim of a run that writes them by parts."""


def receipt_of(servers: str, properties: Mapping[str, str], group: str, topic: str) -> int:
    """Return the receipt that a consumer group holds, as far as the brokers still know; less than 0 for none."""
    from confluent_kafka import TopicPartition

    with client.consumer(servers, {**properties, "group.id": group}) as asked:
        (found,) = asked.committed([TopicPartition(topic, 0)], _PATIENCE)
    return int(found.offset)


def end_with_receipt(
    producer: Producer, servers: str, properties: Mapping[str, str], group: str, topic: str, receipt: int
) -> None:
    """Commit a producer's transaction, and with it a receipt: an offset of a consumer group."""
    from confluent_kafka import TopicPartition

    with client.consumer(servers, {**properties, "group.id": group}) as asked:
        offsets = [TopicPartition(topic, 0, receipt)]
        producer.send_offsets_to_transaction(offsets, asked.consumer_group_metadata(), _PATIENCE)
    producer.commit_transaction(_PATIENCE)


def claimed_by_another(topic: str, token: str) -> SinkError:
    """Return the error of a run that comes while another one writes the same token by parts."""
    return SinkError(
        f"another run is writing {token} to topic {topic}, and has not ended",
        cause="some of its records are there for good",
        hint="its commit is completed by the next job that writes to the topic once its process has ended, or by "
        "`penstock recover`; nothing is left to do then",
    )


def group_of(token: str) -> str:
    """Return the consumer group that holds a token's receipts."""
    return f"penstock-{token}"


def has_token(servers: str, properties: Mapping[str, str], topic: str, token: str) -> bool:
    """Whether the records of a token are in a topic, as far as its brokers still know."""
    return receipt_of(servers, properties, group_of(token), topic) == WRITTEN


def staged_records(access: Access, staging: str) -> Iterator[dict[str, Any]]:
    """Iterate over staged records, as a producer takes them; they pass through the driver, a partition at a time."""
    rows = access.bridge.spark.read.options(**EVERY_ROW).parquet(staging)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield client.record_of(row.asDict(recursive=True))
