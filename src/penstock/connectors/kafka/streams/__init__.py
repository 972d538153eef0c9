"""Streaming reads of topics: the end offset, the records and the tasks of each micro-batch."""
