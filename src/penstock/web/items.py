"""Lines of the findings about a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.web import formatting

if TYPE_CHECKING:
    from penstock.recorded_decisions import RecordedDecision


@dataclass(frozen=True, slots=True)
class Item:
    """A line of a finding: its text, a note in grey, the target of its link, and the text of its badge."""

    text: str
    note: str = ""
    href: str = ""
    badge: str = ""


def badge(decision: RecordedDecision) -> str:
    """Return the badge of a decision that deserves attention, else an empty text."""
    return "not carried out" if decision.instead else "missed" if decision.is_missed else ""


def fallback_or_option(decision: RecordedDecision) -> str:
    """Return what was done instead if the decision was not carried out, else the option that changes it."""
    if not decision.instead:
        return "" if decision.option is None else f"change with {formatting.setting(decision.option)}"
    return f"instead: {decision.instead}" + (f", because {decision.because}" if decision.because else "")
