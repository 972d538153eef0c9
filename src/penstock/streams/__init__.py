"""Batches of streaming queries, and recommendations for their settings."""
