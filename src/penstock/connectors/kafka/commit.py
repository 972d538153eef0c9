"""What a job has ready for a topic: staged records, which one transaction of a producer writes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit import Prepared
from penstock.connectors.extras import address_of, given_for, needs, with_secrets
from penstock.connectors.kafka import client
from penstock.errors import SinkError
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
        if self._has_receipt(access):
            return
        producer.begin_transaction()
        refused: list[str] = []
        for record in staged_records(access, self.staging):
            client.put(producer, {"topic": self.topic, **record}, refused)
        producer.flush(_PATIENCE)
        if refused:
            producer.abort_transaction(_PATIENCE)
            raise SinkError(f"records were not accepted by {self.servers}", cause=refused[0])
        from confluent_kafka import TopicPartition

        with self._group(access) as group:
            producer.send_offsets_to_transaction(
                [TopicPartition(self.topic, 0, 1)], group.consumer_group_metadata(), _PATIENCE
            )
        producer.commit_transaction(_PATIENCE)

    def is_committed(self, access: Access) -> bool:
        """Whether the receipt is there; a transaction of a dead producer is ended first."""
        self._producer(access)
        return self._has_receipt(access)

    def _has_receipt(self, access: Access) -> bool:
        return has_token(self.servers, self._properties(access), self.topic, self.token)

    def undo(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def _producer(self, access: Access) -> Producer:
        needs("confluent_kafka", "kafka", SinkError)
        from confluent_kafka import KafkaException, Producer

        made = Producer(
            {
                "transaction.timeout.ms": _LONGEST,
                **self._properties(access),
                "bootstrap.servers": self.servers,
                "transactional.id": f"penstock-{self.topic}:{self.token}",  # topics have no colon
            }
        )
        try:
            made.init_transactions(_PATIENCE)
        except KafkaException as error:
            raise SinkError(
                f"{self.servers} accepts no transactions for topic {self.topic}",
                cause=str(error.args[0]),
                hint="leave the token out to write at least once, or allow transactions",
            ) from error
        return made

    @contextmanager
    def _group(self, access: Access) -> Iterator[Any]:
        with client.consumer(self.servers, {**self._properties(access), "group.id": group_of(self.token)}) as found:
            yield found

    def _properties(self, access: Access) -> dict[str, str]:
        return with_secrets(self.properties, given_for(access, self.address, self.servers))


def group_of(token: str) -> str:
    """Return the consumer group that holds a token's receipts."""
    return f"penstock-{token}"


def has_token(servers: str, properties: Mapping[str, str], topic: str, token: str) -> bool:
    """Whether the records of a token are in a topic, as far as its brokers still know."""
    from confluent_kafka import TopicPartition

    with client.consumer(servers, {**properties, "group.id": group_of(token)}) as group:
        (found,) = group.committed([TopicPartition(topic, 0)], _PATIENCE)
    return bool(found.offset >= 1)


def staged_records(access: Access, staging: str) -> Iterator[dict[str, Any]]:
    """Iterate over staged records, as a producer takes them; they pass through the driver, a partition at a time."""
    for row in access.bridge.spark.read.parquet(staging).toLocalIterator(prefetchPartitions=True):
        yield client.record_of(row.asDict(recursive=True))
