"""Decisions: what was chosen, based on which figures, for which reason, and with which outcome."""
