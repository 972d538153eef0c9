"""Transactions of producers, and their receipts: offsets of a consumer group, committed with the records."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka import client
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from confluent_kafka import Producer

WRITTEN = 1
"""The receipt of records that are all there. A larger one is the claim of a run that writes them by parts."""
_PATIENCE = 30.0
"""Seconds to wait for the coordinator of transactions."""
_LONGEST = 900_000
"""Milliseconds that a transaction may take; as many as brokers allow where nobody has changed that."""


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


@contextmanager
def transaction(producer: Producer) -> Iterator[None]:
    """Let the block write in a transaction, which its last step ends; one that fails is aborted.

    Readers of committed records wait behind a transaction that is open, until the brokers end it.
    """
    producer.begin_transaction()
    try:
        yield
    except BaseException:
        with suppress(Exception):  # the brokers are away, or have committed it: the error above is the one to show
            producer.abort_transaction(_PATIENCE)
        raise


def write_records(producer: Producer, records: Iterable[Mapping[str, Any]], servers: str, topic: str) -> int:
    """Write records in the transaction that is open; return how many.

    Raises
    ------
    SinkError
        If one was not accepted.
    """
    refused: list[str] = []
    written = 0
    for record in records:
        client.put(producer, {"topic": topic, **record}, refused)
        written += 1
    producer.flush(_PATIENCE)
    if refused:
        raise SinkError(f"records were not accepted by {servers}", cause=refused[0])
    return written


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
