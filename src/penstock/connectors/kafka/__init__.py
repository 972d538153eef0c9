"""Topics of brokers that speak Kafka's protocol."""

from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
