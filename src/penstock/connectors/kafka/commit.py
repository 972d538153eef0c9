"""What a job has ready for a topic: staged records, which one or more transactions of producers write."""

from __future__ import annotations

import re
import time
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit import Prepared
from penstock.commit.names import MARK, check_path
from penstock.connectors.extras import address_of, given_for, needs, with_secrets
from penstock.connectors.kafka import client
from penstock.connectors.kafka.transactions import (
    WRITTEN,
    claimed_by_another,
    end_with_receipt,
    group_of,
    id_of,
    producer_of,
    receipt_of,
    transaction,
    write_records,
)
from penstock.errors import CommitError, SinkError
from penstock.spark.files import EVERY_ROW
from penstock.spark.filesystem import Folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Producer

    from penstock.commit import Access


_STAGED = re.compile(rf"\.penstock-topic-{MARK}")
_REMEMBERED = 6 * 24 * 3600.0
"""Seconds for which a receipt is certainly kept: brokers keep a group's offsets for seven days if nobody has changed
that, and a day is left for clocks that differ."""


@dataclass(frozen=True)
class PreparedTopic(Prepared):
    """Records that are in no topic yet, and the token whose receipt says that they are.

    Parameters
    ----------
    servers
        The brokers.
    topic
        The topic of records that name none.
    token
        The name of what is written; the receipt is an offset of the consumer group of that name.
    staging
        Where the records lie.
    properties
        Further properties of the producer, but for secrets.
    prepared_at
        When the records were ready, in seconds since the epoch; None in journals of older releases.
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
        """The brokers, and the user."""
        return address_of(self.servers, dict(self.properties).get("sasl.username"))

    @property
    def folder(self) -> str:
        """The staging folder, as a topic is none."""
        return self.staging

    def check_names(self) -> None:
        """Refuse a folder that is not one of staged records."""
        check_path(self.staging)
        if _STAGED.fullmatch(self.staging.rpartition("/")[2]) is None:
            raise ValueError(f"{self.staging!r} is not a folder of staged records")

    def ready(self, access: Access) -> None:
        """Begin as the producer of the token: brokers without transactions refuse that."""
        self._producer(access)

    def is_committed(self, access: Access) -> bool:
        """Whether the receipt says that all is written; a transaction of a dead producer is ended first.

        Raises
        ------
        CommitError
            If that cannot be told, as brokers may have forgotten the receipt since.
        """
        self._producer(access)
        return self._receipt_for_certain(access) == WRITTEN

    def undo(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def finish(self, access: Access) -> None:
        """Remove the staged records."""
        Folder(access.bridge, self.staging).delete()

    def _receipt(self, access: Access) -> int:
        return receipt_of(self.servers, self._properties(access), group_of(self.token), self.topic)

    def _receipt_for_certain(self, access: Access) -> int:
        receipt = self._receipt(access)
        if receipt < WRITTEN and self.prepared_at is not None and time.time() - self.prepared_at > _REMEMBERED:
            raise CommitError.receipt_expired(self.target, self.staging, _REMEMBERED)
        return receipt

    def _end(self, access: Access, producer: Producer, receipt: int) -> None:
        """Commit the producer's transaction, and with it the receipt of the token."""
        end_with_receipt(producer, self.servers, self._properties(access), group_of(self.token), self.topic, receipt)

    def _producer(self, access: Access) -> Producer:
        """Begin as the producer of the token, which fences those that began as it before."""
        needs("confluent_kafka", "kafka", SinkError)
        return producer_of(self.servers, self._properties(access), id_of(self.topic, self.token), self.topic)

    def _properties(self, access: Access) -> dict[str, str]:
        return with_secrets(self.properties, given_for(access, self.address, self.servers))


@dataclass(frozen=True)
class PreparedKafka(PreparedTopic):
    """Records that one transaction writes, and the receipt with them."""

    kind: ClassVar[str] = "kafka"

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
        with transaction(producer):
            write_records(producer, staged_records(access, self.staging), self.servers, self.topic)
            self._end(access, producer, WRITTEN)


def staged_records(access: Access, staging: str) -> Iterator[dict[str, Any]]:
    """Iterate over staged records, as a producer takes them; they pass through the driver, a partition at a time."""
    rows = access.bridge.spark.read.options(**EVERY_ROW).parquet(staging)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield client.record_of(row.asDict(recursive=True))
