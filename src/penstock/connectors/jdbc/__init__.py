"""Source and sink of databases, through Spark's JDBC support."""

from penstock.connectors.jdbc.sink import JdbcSink
from penstock.connectors.jdbc.source import JdbcScan, JdbcSource, dialect_of

__all__ = ["JdbcScan", "JdbcSink", "JdbcSource", "dialect_of"]
