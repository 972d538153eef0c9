"""From operators of Spark's optimised logical plan to nodes and edges: a module for each family of operators."""

from penstock.planner.translation import joins, keyed, limits, narrow, repartitions
from penstock.planner.translation.translator import Translator

__all__ = ["Translator", "joins", "keyed", "limits", "narrow", "repartitions"]
