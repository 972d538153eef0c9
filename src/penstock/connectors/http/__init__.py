"""Sink of rows that are sent to a service by HTTP."""

from penstock.connectors.http.sink import HttpSink

__all__ = ["HttpSink"]
