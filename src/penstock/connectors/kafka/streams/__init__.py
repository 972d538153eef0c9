"""Streams of topics: the end, the records and the tasks of each micro-batch."""
