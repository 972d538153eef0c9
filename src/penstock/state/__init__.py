"""Keyed state of streaming queries: inspect it, and change its number of key groups."""

from penstock.state.api import abort, inspect, plan, prune, rescale, rescale_running
from penstock.state.starting import start_query

__all__ = ["abort", "inspect", "plan", "prune", "rescale", "rescale_running", "start_query"]
