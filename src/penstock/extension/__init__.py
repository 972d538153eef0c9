"""Spark programs as they are: the queries of a session run as jobs when their rows are asked for."""

from penstock.extension.sessions import disable, enable, enabled

__all__ = ["disable", "enable", "enabled"]
