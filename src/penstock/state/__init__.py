"""Keyed state of streaming queries: look at it, and change the number of key groups it is kept in."""

from penstock.state.api import abort, inspect, plan, prune, rescale, start_query

__all__ = ["abort", "inspect", "plan", "prune", "rescale", "start_query"]
