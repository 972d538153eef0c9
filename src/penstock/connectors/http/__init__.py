"""Sink of rows that are sent to a service by HTTP."""
