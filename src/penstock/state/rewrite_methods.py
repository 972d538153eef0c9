"""Methods of rewriting a state store for another number of key groups, and the choice between them."""

from __future__ import annotations

from enum import StrEnum

from penstock.state.assignment import Change, StateAssignment

MAX_OPEN_STORES = 256
"""Largest number of stores that a task may have open at once; each key group has its own store."""


class RewriteMethod(StrEnum):
    """Method of moving the rows of a store to other key groups."""

    FILES = "files"
    """Copy the sorted bytes of rows between files, without a shuffle and without inserting rows."""
    ROWS = "rows"
    """Insert row by row, without a shuffle."""
    SHUFFLE = "shuffle"
    """Insert row by row, after a shuffle."""


def choose_method(
    assignment: StateAssignment, *, is_keyed: bool, encoding: str, files_problem: str | None, slots: int
) -> tuple[RewriteMethod, str]:
    """Return the method for a store, and the reason.

    `is_keyed` says whether a key distributes the rows, `encoding` is how Spark encodes them. `files_problem` says
    why `FILES` does not work with this release of Spark; None if it does. `slots` is the number of concurrent tasks.
    """
    if files_problem is None and encoding != "unsaferow":
        files_problem = f"keys are encoded as {encoding}"
    if files_problem is None and is_keyed:
        max_open = max(len(unit.reads) + len(unit.writes) for unit in assignment.work_units(slots))
        if max_open > MAX_OPEN_STORES:
            files_problem = f"a task would have {max_open} stores open, more than {MAX_OPEN_STORES}"
    if files_problem is None:
        return RewriteMethod.FILES, "the sorted bytes of rows are copied between files, which is fastest"
    cause = f"its sorted bytes cannot be copied: {files_problem}"
    if not is_keyed:
        return RewriteMethod.ROWS, f"it has a single key group, which is copied; {cause}"
    if assignment.change is Change.REGROUP:
        return RewriteMethod.SHUFFLE, f"{assignment.new} is not a multiple or divisor of {assignment.old}; {cause}"
    return RewriteMethod.ROWS, f"a {assignment.change} needs no shuffle; {cause}"
