"""Classification of SQL statements before they run, because Spark runs commands immediately."""

from __future__ import annotations

from py4j.java_gateway import is_instance_of

from penstock.spark.bridge.jvm import LOGICAL, Bridge, children, class_name
from penstock.spark.run.jobs import active_session

_COMMANDS = ("Command", "ParsedStatement", "InsertIntoDir")
"""Classes of parsed plans with side effects, including unresolved statements."""
_EXECUTE_IMMEDIATE = ("UnresolvedExecuteImmediate", "ExecuteImmediateQuery")
"""EXECUTE IMMEDIATE in new and old releases: its text, which may be any statement, runs during analysis."""


def is_query(bridge: Bridge, statement: str) -> bool:
    """Whether a statement only returns rows, without side effects. Raises `ParseException` if it is not SQL."""
    with active_session(bridge.session):
        todo = [bridge.session._handle.sessionState().sqlParser().parsePlan(statement)]
    while todo:
        plan = todo.pop()
        name = class_name(plan)
        if name in ("UnresolvedWith", "Union"):  # FROM t INSERT ... INSERT ... is a union of both inserts
            todo += children(plan)
        elif name in _EXECUTE_IMMEDIATE or any(
            is_instance_of(bridge._gateway, plan, LOGICAL + command) for command in _COMMANDS
        ):
            return False
    return True
