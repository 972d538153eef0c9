"""Spark's plans and expressions, as wrappers and plain values."""
