"""Spark's state stores and streaming queries."""
