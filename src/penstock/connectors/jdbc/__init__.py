"""Databases, through Spark's JDBC source."""

from penstock.connectors.jdbc.sink import JdbcSink
from penstock.connectors.jdbc.source import JdbcScan, JdbcSource, dialect_of

__all__ = ["JdbcScan", "JdbcSink", "JdbcSource", "dialect_of"]
