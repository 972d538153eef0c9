"""Where in a plan rows can raise errors, and what leaves out rows before that (``java/ErrorSites.java``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark import answers

if TYPE_CHECKING:
    from penstock.spark.logical_plan import LogicalPlan


@dataclass(frozen=True, slots=True)
class ErrorSite:
    """A place in a plan where an expression can raise an error.

    Parameters
    ----------
    expression
        A text that is equal for expressions that compute the same of the same sources.
    behind
        Texts of the conditions, joins, groups and other operators that its rows have passed.
    """

    expression: str
    behind: frozenset[str]


def error_sites(plan: LogicalPlan) -> frozenset[ErrorSite]:
    """Return the places of an optimised plan where a row can raise an error."""
    found = answers.facts(plan._bridge.helper("ErrorSites").read(plan._handle))
    return frozenset(ErrorSite(expression, frozenset(behind)) for expression, behind in found)
