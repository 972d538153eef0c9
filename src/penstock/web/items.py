"""Lines of answers about a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.web import words

if TYPE_CHECKING:
    from penstock.told import ToldDecision


@dataclass(frozen=True, slots=True)
class Item:
    """One line of an answer: a text, what is set apart in it, where it leads to, and a word that marks it."""

    text: str
    note: str = ""
    href: str = ""
    mark: str = ""


def mark(one: ToldDecision) -> str:
    """Return the word that marks what a reader should look at, empty if that is nothing."""
    return "came otherwise" if one.instead else "missed" if one.is_missed else ""


def otherwise(one: ToldDecision) -> str:
    """Return what was done instead of what was decided, else the option that changes it."""
    if not one.instead:
        return "" if one.option is None else f"change with {words.setting(one.option)}"
    return f"instead: {one.instead}" + (f", because {one.because}" if one.because else "")
