"""Penstock in notebooks and in tests of pytest."""
