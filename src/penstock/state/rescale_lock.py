"""The lock under which a process changes the key groups of a checkpoint."""

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
"""The lock file: beside the folder of a rescale, so that the folder can be removed while the lock is held."""


@contextmanager
def rescale_lock(bridge: Bridge, checkpoint: Folder) -> Iterator[None]:
    """Hold the exclusive right to write, finish, undo or remove a rescale while the block runs.

    Enter it before reading a journal, as another holder may write a journal. The lock of a dead process is free; see
    `penstock.commit.lease` for processes on other machines.

    Raises
    ------
    StateError
        If another process or thread holds the lock, or the checkpoint cannot be written to.
    """
    access, path = Access(bridge), str(checkpoint.child(CLAIM))
    with ExitStack() as stack:
        try:
            is_mine = stack.enter_context(claimed(access, path))
            holder = None if is_mine else holder_of(access, path)
        except Exception as error:
            raise StateError.not_writable(str(checkpoint), root_cause(error)) from error
        if not is_mine:
            raise StateError.in_progress(str(checkpoint), str(holder or "another process"), path)
        yield
