"""The user's own function of a plan, as PySpark has pickled it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SentFunction:
    """A function that is read where it runs: only there are its broadcast variables.

    Parameters
    ----------
    command
        The function and its type, pickled; or a broadcast variable with that, if it is large.
    """

    def __init__(self, command: bytes) -> None:
        self._command = command

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Call it."""
        return self._function()(batches)

    def _function(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        from pyspark import Broadcast, cloudpickle

        found = cloudpickle.loads(self._command)
        if isinstance(found, Broadcast):
            found = cloudpickle.loads(found.value)
        function: Callable[[Iterator[Any]], Iterator[Any]] = found[0]
        return function
