"""The user's own function in a plan, as pickled by PySpark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class UserFunction:
    """A pickled function that is loaded where it runs, because only executors have its broadcast variables.

    Parameters
    ----------
    command
        The pickled function and its type; or a pickled broadcast variable with these, if they are large.
    """

    def __init__(self, command: bytes) -> None:
        self._command = command

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Call the function."""
        return self._function()(batches)

    def _function(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        from pyspark import Broadcast, cloudpickle

        command = cloudpickle.loads(self._command)
        if isinstance(command, Broadcast):
            command = cloudpickle.loads(command.value)
        function: Callable[[Iterator[Any]], Iterator[Any]] = command[0]
        return function
