"""Inspection and rescaling of the keyed state of streaming queries."""

from penstock.state.api import abort, inspect, plan, prune, rescale, rescale_running
from penstock.state.starting import start_query

__all__ = ["abort", "inspect", "plan", "prune", "rescale", "rescale_running", "start_query"]
