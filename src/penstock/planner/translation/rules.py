"""Registry of the functions that translate Catalyst operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.planner.draft import TranslatedNode
    from penstock.planner.translation.translator import Translator
    from penstock.spark.plans import LogicalNode

Rule = Callable[["Translator", "LogicalNode"], "TranslatedNode"]
_RULES: dict[str, Rule] = {}


def translates(*names: str) -> Callable[[Rule], Rule]:
    """Register a function for operators by class name, such as ``Join``."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"{name} is translated twice")
            _RULES[name] = rule
        return rule

    return register


def rule_of(name: str) -> Rule | None:
    """Return the function that translates an operator, or None if there is none."""
    return _RULES.get(name)
