"""Runs the queries of ordinary Spark programs as Penstock jobs, without changes to the programs."""

from penstock.extension.sessions import disable, enable, enabled

__all__ = ["disable", "enable", "enabled"]
