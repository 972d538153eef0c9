"""Source and sink of topics of Kafka-compatible brokers."""

from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
