"""Sink of topics, with at-least-once or exactly-once delivery."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.arguments import check_settings, check_text, check_type
from penstock.commit.journal import journals_at, read_if_trusted, warehouse_of
from penstock.commit.owner import Owner
from penstock.commit.recovery import recover_if_trusted
from penstock.connectors.core.base import (
    NothingToWrite,
    Sink,
    SinkJob,
    already_written,
    check_positive,
    require_positive,
)
from penstock.connectors.core.extras import client_key, require_module, without_secrets
from penstock.connectors.kafka import client
from penstock.connectors.kafka.commit import (
    PreparedKafka,
    PreparedKafkaParts,
    PreparedTopic,
    TransactionalTopic,
    divide_files,
)
from penstock.errors import SinkError
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.commit import Access, Prepared

log = logging.getLogger("penstock.sinks")

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
DELIVERIES = (AT_LEAST_ONCE, EXACTLY_ONCE)
COLUMNS = ("key", "value", "topic", "partition", "headers")


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A topic of Kafka-compatible brokers.

    With at-least-once delivery, tasks write records directly, and a retried task writes its records again. With
    exactly-once delivery, records are staged in Spark's warehouse and written in transactions when the job commits;
    readers of committed records see each once, even after crashes.

    The rows have a column ``value`` (binary or string), and may have ``key``, ``topic``, ``partition`` and ``headers``,
    as in Spark's own Kafka sink.

    >>> KafkaSink("broker:9092", "orders", token="2024-01-01").is_exact
    True

    Parameters
    ----------
    servers
        The brokers, as ``host:port`` separated by commas.
    topic
        The default topic; a column ``topic`` overrides it.
    properties
        Further properties of librdkafka's producer.
    parallelism
        The number of writing tasks; if None, the tasks that compute the rows write them.
    token
        An idempotency token for these rows, such as the day of a daily load. If the topic has it already, the job
        writes nothing. So a job whose driver died can be repeated, and the topic has the rows once. Brokers store the
        token as long as offsets of a consumer group without members: seven days by default.
    delivery
        ``"at-least-once"`` or ``"exactly-once"``. If None, exactly once if there is a `token`. Without a token, a
        repeated job writes its records again.
    transactions
        The number of transactions for exactly-once delivery. With 1, the driver writes all records, and readers see
        them all at once. With more, Spark tasks write that many parts concurrently, and readers may see some parts
        before others. There are at most as many parts as staged files.
    """

    servers: str
    topic: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    parallelism: int | None = None
    token: str | None = None
    delivery: str | None = None
    transactions: int = 1

    def __post_init__(self) -> None:
        check_text(self.servers, "KafkaSink", "servers, which are a text such as host:9092")
        check_type(self.topic, (str, type(None)), "KafkaSink", "the name of a topic, which is a text")
        check_settings(self.properties, "the properties of KafkaSink")
        check_positive(f"sink {self.name}", self.parallelism)
        if self.topic is None and (self.token is not None or self.delivery == EXACTLY_ONCE):
            setting = "delivery exactly once" if self.token is None else "a token"
            raise SinkError(f"{setting} without a topic", hint="give KafkaSink a topic; rows may have a column topic")
        if self.delivery not in {None, *DELIVERIES}:
            raise SinkError(f"delivery {self.delivery!r} is not valid", hint=f"give {' or '.join(DELIVERIES)}")
        if self.delivery == AT_LEAST_ONCE and self.token is not None:
            raise SinkError("a token, and delivery at least once", hint="leave one of them out")
        require_positive(self.transactions, f"transactions of sink {self.name}")
        if self.transactions > 1 and not self.is_exact:
            raise SinkError(
                f"{self.transactions} transactions, and delivery at least once", hint='give delivery="exactly-once"'
            )

    @property
    def is_exact(self) -> bool:
        """Whether delivery is exactly once."""
        return self.delivery == EXACTLY_ONCE or self.token is not None

    @property
    def name(self) -> str:
        """The topic."""
        return self.topic or "topics of the rows"

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        """The properties of the producer."""
        return {client_key(self.servers, self.properties.get("sasl.username")): dict(self.properties)}

    def recover(self, access: Access) -> None:
        """Complete or roll back the interrupted commit of a dead process."""
        warehouse = HadoopPath(access.bridge, warehouse_of(access.bridge))
        for path in journals_at(access, warehouse):
            journal = read_if_trusted(access, path)
            topics = [] if journal is None else [part for part in journal.parts if isinstance(part, PreparedTopic)]
            if any((part.servers, part.topic) == (self.servers, self.topic) for part in topics):
                recover_if_trusted(access, path)

    def open(self, spark: SparkSession) -> SinkJob:
        """Check that a broker has the topic; return a job that writes nothing if the topic already has the token."""
        require_module("confluent_kafka", "kafka", SinkError)
        with client.consumer(self.servers, self.properties) as consumer:
            client.partitions_of(consumer, [self.topic] if self.topic else [], self.servers)
        if not self.is_exact or self.topic is None:
            return _KafkaSinkJob(self)
        if self.token is None:
            return _TransactionalSinkJob(Bridge(spark), self, self.topic, f"run-{uuid.uuid4().hex}")
        if TransactionalTopic(self.servers, self.topic, self.properties).has_token(self.token):
            log.warning("topic %s already has the records of token %s, nothing is written", self.topic, self.token)
            return NothingToWrite(already_written(self.token))
        return _TransactionalSinkJob(Bridge(spark), self, self.topic, self.token)


class _KafkaSinkJob(SinkJob):
    """Write records at least once, directly from the tasks."""

    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink

    def check(self, schema: StructType) -> None:
        """Reject rows with unknown columns, and rows that lack the column ``value`` or a topic."""
        columns = schema.fieldNames()
        unknown = [name for name in columns if name not in COLUMNS]
        if "value" not in columns or unknown:
            raise SinkError(
                f"columns {', '.join(columns)} cannot be written to a topic",
                hint=f"select value, and any of {', '.join(name for name in COLUMNS if name != 'value')}",
            )
        if self._sink.topic is None and "topic" not in columns:
            raise SinkError("rows without a topic", hint="give KafkaSink a topic, or the rows a column topic")

    def write(self, df: DataFrame) -> None:
        write_rows = partial(_write, self._sink.servers, dict(self._sink.properties), self._sink.topic)
        df.mapInArrow(write_rows, "records bigint").collect()

    def abort(self) -> None:
        """Do nothing: written records cannot be removed from a topic."""


class _TransactionalSinkJob(_KafkaSinkJob):
    """Stage records as Parquet files; the commit writes them to the topic exactly once, under the name `token`."""

    calls_python = False

    def __init__(self, bridge: Bridge, sink: KafkaSink, topic: str, token: str) -> None:
        super().__init__(sink)
        self._topic = topic
        self._token = token
        name = f".penstock-topic-{uuid.uuid4().hex[:12]}-{Owner.current().tag}"
        self._staging = HadoopPath(bridge, warehouse_of(bridge)).child(name)

    def write(self, df: DataFrame) -> None:
        df.write.mode("overwrite").parquet(str(self._staging))

    def restart(self) -> bool:
        self._staging.delete()
        return True

    @property
    def secrets(self) -> Mapping[str, Mapping[str, str]]:
        return self._sink.secrets

    def prepare(self) -> Prepared:
        self._staging.sync()
        common = self._sink.servers, self._topic, self._token, str(self._staging)
        properties, transactions = without_secrets(self._sink.properties), self._sink.transactions
        parts = divide_files(self._staging.files_below(), transactions) if transactions > 1 else ()
        if len(parts) > 1:
            return PreparedKafkaParts(
                *common, self._staging.name, parts, properties=properties, prepared_at=time.time()
            )
        return PreparedKafka(*common, properties=properties, prepared_at=time.time())

    def abort(self) -> None:
        self._staging.delete()


def _write(
    servers: str, properties: dict[str, str], topic: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    records = ({"topic": topic, **client.record_of(row)} for batch in batches for row in batch.to_pylist())
    yield pa.RecordBatch.from_pydict({"records": [client.produce(servers, properties, records)]})
