"""Execution of a vertex on Spark: its input, its plan fragment, its output."""
