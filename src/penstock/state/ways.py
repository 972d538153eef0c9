"""The ways a store can be rewritten, and which one is taken."""

from __future__ import annotations

from enum import StrEnum

from penstock.state.assignment import Change, StateAssignment

OPEN_STORES = 256
"""Stores that one task may have open at once."""


class Way(StrEnum):
    """How a store gets other key groups."""

    FILES = "files"
    """Sorted bytes are moved; no shuffle, no row is inserted."""
    ROWS = "rows"
    """Row by row, without a shuffle."""
    SHUFFLE = "shuffle"
    """Row by row, through one shuffle."""


def choose_way(
    assignment: StateAssignment, *, keyed: bool, encoding: str, files_problem: str | None, slots: int
) -> tuple[Way, str]:
    """Return the way for a store, and why.

    Parameters
    ----------
    assignment
        From how many key groups to how many.
    keyed
        Whether rows are spread by a key.
    encoding
        How keys are encoded.
    files_problem
        Why files cannot be moved on this Spark; None where they can.
    slots
        The tasks that can run at once.
    """
    if files_problem is None and encoding != "unsaferow":
        files_problem = f"keys are encoded as {encoding}"
    if files_problem is None and keyed:
        widest = max(len(unit.reads) + len(unit.writes) for unit in assignment.work_units(slots))
        if widest > OPEN_STORES:
            files_problem = f"a task would have {widest} stores open, more than {OPEN_STORES}"
    if files_problem is None:
        return Way.FILES, "sorted files are moved whole"
    if not keyed:
        return Way.ROWS, f"copied as key group 0; not as files: {files_problem}"
    if assignment.change is Change.REGROUP:
        return (
            Way.SHUFFLE,
            f"{assignment.new} is no multiple or divisor of {assignment.old}; not as files: {files_problem}",
        )
    return Way.ROWS, f"{assignment.change} needs no shuffle; not as files: {files_problem}"
