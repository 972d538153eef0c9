"""What a SQL statement is, before it runs: Spark runs commands at once.

Uses (Spark 4.0 to 4.3): ``SessionState.sqlParser``, ``ParserInterface.parsePlan``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from py4j.java_gateway import is_instance_of

from penstock.spark.jvm import LOGICAL, class_name

if TYPE_CHECKING:
    from penstock.spark.jvm import Bridge

_NO_QUERIES = ("Command", "ParsedStatement")
"""Classes of plans that do something, as they come from the parser: those known to it, and those yet to be resolved."""


def is_query(bridge: Bridge, statement: str) -> bool:
    """Return whether a statement gives rows and does nothing else.

    Raises
    ------
    ParseException
        If it is not Spark SQL.
    """
    plan = bridge.spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)
    while class_name(plan) == "UnresolvedWith":
        plan = plan.child()
    return not any(is_instance_of(bridge._gateway, plan, LOGICAL + name) for name in _NO_QUERIES)
