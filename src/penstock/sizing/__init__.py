"""Computation of how much each task reads, as pure arithmetic."""
