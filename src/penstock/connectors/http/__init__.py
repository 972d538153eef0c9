"""Services that take rows by HTTP."""

from penstock.connectors.http.sink import HttpSink

__all__ = ["HttpSink"]
