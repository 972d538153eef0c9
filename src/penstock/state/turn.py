"""Whose turn it is: one process at a time changes the key groups of a checkpoint."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from penstock.commit import Access
from penstock.commit.claims import claimed, holder_of
from penstock.errors import StateError
from penstock.spark.jvm import root_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.filesystem import Folder
    from penstock.spark.jvm import Bridge

CLAIM = "_penstock_rescale.claim"
"""Beside the folder of a rescale, so that the folder can be removed while it is still claimed."""


@contextmanager
def my_turn(bridge: Bridge, checkpoint: Folder) -> Iterator[None]:
    """Let nobody else write, finish, undo or remove anything of a rescale while the block runs.

    It is to be entered before a journal is read, as whoever has its turn may write another one. A process that has died
    is nobody; see `penstock.commit.lease` about one on another machine.

    Raises
    ------
    StateError
        If somebody else does so, or the checkpoint cannot be written to.
    """
    access, path = Access(bridge), str(checkpoint.child(CLAIM))
    with ExitStack() as stack:
        try:
            is_mine = stack.enter_context(claimed(access, path))
            holder = None if is_mine else holder_of(access, path)
        except Exception as error:
            raise StateError.not_writable(str(checkpoint), root_cause(error)) from error
        if not is_mine:
            raise StateError.in_hand(str(checkpoint), str(holder or "another process"), path)
        yield
