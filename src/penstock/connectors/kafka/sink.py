"""Topics as sinks: every record's receipt is awaited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import Sink, SinkJob, checked_parallelism
from penstock.connectors.extras import needs
from penstock.connectors.kafka import client
from penstock.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("key", "value", "topic", "partition", "headers")


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A topic of brokers that speak Kafka's protocol; at least once: a task that runs twice writes twice.

    The rows have a column ``value`` (binary or string), and may have ``key``, ``topic``, ``partition`` and ``headers``,
    as Spark's own Kafka sink takes them.

    Parameters
    ----------
    servers
        The brokers, as ``host:port`` separated by commas.
    topic
        The topic of rows that name none.
    properties
        Further properties of librdkafka's producer.
    parallelism
        The number of writing tasks; if None, that of the upstream.
    """

    servers: str
    topic: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    parallelism: int | None = None

    def __post_init__(self) -> None:
        if self.parallelism is not None:
            checked_parallelism(self.parallelism, f"sink {self.name}")

    @property
    def name(self) -> str:
        """The topic."""
        return self.topic or "topics of the rows"

    def open(self, spark: SparkSession) -> SinkJob:  # noqa: ARG002
        """Look whether a broker answers, and whether it has the topic."""
        needs("confluent_kafka", "kafka", SinkError)
        with client.consumer(self.servers, self.properties) as asked:
            client.partitions_of(asked, [self.topic] if self.topic else [], self.servers)
        return _KafkaSinkJob(self)


class _KafkaSinkJob(SinkJob):
    def __init__(self, sink: KafkaSink) -> None:
        self._sink = sink

    def write(self, df: DataFrame) -> None:
        unknown = [name for name in df.columns if name not in COLUMNS]
        if "value" not in df.columns or unknown:
            raise SinkError(
                f"columns {', '.join(df.columns)} cannot be written to a topic",
                hint=f"select value, and any of {', '.join(name for name in COLUMNS if name != 'value')}",
            )
        if self._sink.topic is None and "topic" not in df.columns:
            raise SinkError("rows without a topic", hint="give KafkaSink a topic, or the rows a column topic")
        write = _writer(self._sink.servers, dict(self._sink.properties), self._sink.topic)
        df.mapInArrow(write, "records bigint").collect()

    def commit(self) -> None:
        """Do nothing: receipts have been checked."""

    def abort(self) -> None:
        """Do nothing: what is in a topic cannot be taken back."""


def _writer(
    servers: str, properties: dict[str, str], topic: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def records(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
        for batch in batches:
            for row in batch.to_pylist():
                record = {name: value for name, value in row.items() if value is not None and name != "headers"}
                record.setdefault("topic", topic)
                record.setdefault("value", None)
                if row.get("headers"):
                    record["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
                yield record

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        taken = client.produce(servers, properties, records(batches))
        yield pa.RecordBatch.from_pydict({"records": [taken]})

    return write
