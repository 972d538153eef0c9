"""What a SQL statement is, before it runs: Spark runs commands at once.

Uses (Spark 4.0 to 4.3): ``SessionState.sqlParser``, ``ParserInterface.parsePlan``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.java_gateway import is_instance_of

from penstock.spark.jobs import active_session
from penstock.spark.jvm import LOGICAL, children, class_name

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_NO_QUERIES = ("Command", "ParsedStatement", "InsertIntoDir")
"""Classes of plans that do something, as they come from the parser: those known to it, and those yet to be resolved."""
_RUN_A_TEXT = ("UnresolvedExecuteImmediate", "ExecuteImmediateQuery")
"""EXECUTE IMMEDIATE, of new and of earlier releases: its text may be any statement, and runs when it is analysed."""


def is_query(bridge: Bridge, statement: str) -> bool:
    """Return whether a statement gives rows and does nothing else.

    Raises
    ------
    ParseException
        If it is not Spark SQL.
    """
    with active_session(bridge.session):
        plan = bridge.session._handle.sessionState().sqlParser().parsePlan(statement)
    todo = [plan]
    while todo:
        plan = todo.pop()
        name = class_name(plan)
        if name in ("UnresolvedWith", "Union"):  # FROM t INSERT ... INSERT ... is a union of both
            todo += children(plan)
        elif name in _RUN_A_TEXT or any(is_instance_of(bridge._gateway, plan, LOGICAL + one) for one in _NO_QUERIES):
            return False
    return True
