"""Finds where the time of a Spark application went, from its event log."""
