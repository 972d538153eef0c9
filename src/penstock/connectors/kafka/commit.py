"""Commit records of topics: staged records that producers write in transactions."""

from __future__ import annotations

import re
import time
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.commit import Prepared
from penstock.commit.names import MARK, check_path
from penstock.connectors.extras import client_key, needs, secrets_for, with_secrets
from penstock.connectors.kafka import client
from penstock.connectors.kafka.transactions import (
    WRITTEN,
    claimed_by_another,
    commit_with_receipt,
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
_RECEIPT_SECONDS = 6 * 24 * 3600.0
"""Seconds for which a receipt certainly exists: by default, brokers retain a group's offsets for seven days, and a day
is reserved for clock differences."""


@dataclass(frozen=True)
class PreparedTopic(Prepared):
    """Commit record of staged records, and of the token whose receipt proves that they are written.

    Parameters
    ----------
    servers
        The brokers.
    topic
        The default topic of records.
    token
        The idempotency token of the records; its receipt is an offset of a consumer group named after it.
    staging
        The staging folder.
    properties
        Further properties of the producer without secrets.
    prepared_at
        The time of `prepare` in seconds since the epoch; None in journals of older releases.
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

        Raises
        ------
        CommitError
            If that cannot be determined, because the receipt may have expired.
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
        return receipt_of(self.servers, self._properties(access), group_of(self.token), self.topic)

    def _unexpired_receipt(self, access: Access) -> int:
        receipt = self._receipt(access)
        if receipt < WRITTEN and self.prepared_at is not None and time.time() - self.prepared_at > _RECEIPT_SECONDS:
            raise CommitError.receipt_expired(self.target, self.staging, _RECEIPT_SECONDS)
        return receipt

    def _end(self, access: Access, producer: Producer, receipt: int) -> None:
        """Commit the producer's transaction together with the receipt of the token."""
        commit_with_receipt(producer, self.servers, self._properties(access), group_of(self.token), self.topic, receipt)

    def _producer(self, access: Access) -> Producer:
        """Register the producer of the token, which fences earlier producers of the same name."""
        needs("confluent_kafka", "kafka", SinkError)
        return producer_of(self.servers, self._properties(access), id_of(self.topic, self.token), self.topic)

    def _properties(self, access: Access) -> dict[str, str]:
        return with_secrets(self.properties, secrets_for(access, self.address, self.servers))


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
            raise claimed_by_another(self.topic, self.token)
        with transaction(producer):
            write_records(producer, staged_records(access, self.staging), self.servers, self.topic)
            self._end(access, producer, WRITTEN)


def staged_records(access: Access, staging: str) -> Iterator[dict[str, Any]]:
    """Yield staged records for a producer; they are fetched to the driver partition by partition."""
    rows = access.bridge.spark.read.options(**EVERY_ROW).parquet(staging)
    for row in rows.toLocalIterator(prefetchPartitions=True):
        yield client.record_of(row.asDict(recursive=True))
