"""Streaming queries as they run: their batches, and what their settings should be."""
