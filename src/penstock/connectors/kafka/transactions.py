"""Transactions of producers, with receipts: offsets of a consumer group that are committed with the records."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka import client
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confluent_kafka import Producer

WRITTEN = 1
"""The receipt of completely written records. A larger receipt is the claim of a run that writes them in parts."""
_TIMEOUT = 30.0
"""Seconds to wait for the transaction coordinator."""
_TRANSACTION_MILLISECONDS = 900_000
"""The maximum duration of a transaction; the default limit of brokers."""


def id_of(topic: str, token: str) -> str:
    """Return the transactional id of the producer that writes a token's receipt."""
    return f"penstock-{topic}:{token}"  # names of topics have no colon


def producer_of(servers: str, properties: Mapping[str, str], name: str, topic: str) -> Producer:
    """Register a producer with a transactional id, which fences earlier producers with the same id.

    Raises
    ------
    SinkError
        If the brokers do not support transactions.
    """
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        {
            "transaction.timeout.ms": _TRANSACTION_MILLISECONDS,
            **properties,
            "bootstrap.servers": servers,
            "transactional.id": name,
        }
    )
    try:
        producer.init_transactions(_TIMEOUT)
    except KafkaException as error:
        raise SinkError(
            f"{servers} accepts no transactions for topic {topic}",
            cause=str(error.args[0]),
            hint="write at least once, without a token, or allow transactions",
        ) from error
    return producer


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


def write_records(producer: Producer, records: Iterable[Mapping[str, Any]], servers: str, topic: str) -> int:
    """Write records in the open transaction; return their number.

    Raises
    ------
    SinkError
        If a record was not accepted.
    """
    errors: list[str] = []
    written = 0
    for record in records:
        client.put(producer, {"topic": topic, **record}, errors)
        written += 1
    producer.flush(_TIMEOUT)
    if errors:
        raise SinkError(f"records were not accepted by {servers}", cause=errors[0])
    return written


def receipt_of(servers: str, properties: Mapping[str, str], group: str, topic: str) -> int:
    """Return the receipt of a consumer group; negative if there is none or it has expired."""
    from confluent_kafka import TopicPartition

    with client.consumer(servers, {**properties, "group.id": group}) as consumer:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], _TIMEOUT)
    return int(committed.offset)


def commit_with_receipt(
    producer: Producer, servers: str, properties: Mapping[str, str], group: str, topic: str, receipt: int
) -> None:
    """Commit a producer's transaction together with a receipt."""
    from confluent_kafka import TopicPartition

    with client.consumer(servers, {**properties, "group.id": group}) as consumer:
        offsets = [TopicPartition(topic, 0, receipt)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _TIMEOUT)
    producer.commit_transaction(_TIMEOUT)


def claimed_by_another(topic: str, token: str) -> SinkError:
    """Return the error of a run while another run is writing the same token in parts."""
    return SinkError(
        f"another run is writing {token} to topic {topic}, and has not ended",
        cause="some of its records are there for good",
        hint="its commit is completed by the next job that writes to the topic once its process has ended, or by "
        "`penstock recover`; nothing is left to do then",
    )


def group_of(token: str) -> str:
    """Return the consumer group of a token's receipts."""
    return f"penstock-{token}"


def has_token(servers: str, properties: Mapping[str, str], topic: str, token: str) -> bool:
    """Return whether a topic has the records of a token, unless its receipt has expired."""
    return receipt_of(servers, properties, group_of(token), topic) == WRITTEN
