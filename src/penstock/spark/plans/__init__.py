"""Spark's plans and expressions, as wrappers of JVM objects and as plain values."""
