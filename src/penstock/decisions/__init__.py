"""Decisions: what was chosen, from which figures and why, and what came of it."""
