"""Methods of rewriting a state store, and the choice between them."""

from __future__ import annotations

from enum import StrEnum

from penstock.state.assignment import Change, StateAssignment

OPEN_STORES = 256
"""Largest number of stores that a task may have open at once."""


class RewriteMethod(StrEnum):
    """Method of moving the rows of a store to other key groups."""

    FILES = "files"
    """Copy sorted bytes between files; no shuffle, no row is inserted."""
    ROWS = "rows"
    """Insert row by row, without a shuffle."""
    SHUFFLE = "shuffle"
    """Insert row by row, after a shuffle."""


def choose_method(
    assignment: StateAssignment, *, keyed: bool, encoding: str, files_problem: str | None, slots: int
) -> tuple[RewriteMethod, str]:
    """Return the method for a store, and the reason.

    `keyed` says whether the rows are distributed by a key. `files_problem` is the reason why this Spark cannot move
    files; None if it can. `slots` is the number of tasks that can run at the same time.
    """
    if files_problem is None and encoding != "unsaferow":
        files_problem = f"keys are encoded as {encoding}"
    if files_problem is None and keyed:
        widest = max(len(unit.reads) + len(unit.writes) for unit in assignment.work_units(slots))
        if widest > OPEN_STORES:
            files_problem = f"a task would have {widest} stores open, more than {OPEN_STORES}"
    if files_problem is None:
        return RewriteMethod.FILES, "files are rewritten whole, which is fastest"
    if not keyed:
        return RewriteMethod.ROWS, f"it has a single key group, which is copied; not by files: {files_problem}"
    if assignment.change is Change.REGROUP:
        reason = f"{assignment.new} is not a multiple or divisor of {assignment.old}; not by files: {files_problem}"
        return RewriteMethod.SHUFFLE, reason
    return RewriteMethod.ROWS, f"a {assignment.change} needs no shuffle; not by files: {files_problem}"
