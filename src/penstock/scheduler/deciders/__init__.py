"""Decisions before a vertex runs: how it reads its sources and its exchanged inputs, and what it writes."""
