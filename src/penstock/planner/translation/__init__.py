"""Translates operators of Spark's optimized logical plan to nodes and edges, with a module per operator family."""

from penstock.planner.translation import joins, keyed, narrow, repartitions
from penstock.planner.translation.translator import Translator

__all__ = ["Translator", "joins", "keyed", "narrow", "repartitions"]
