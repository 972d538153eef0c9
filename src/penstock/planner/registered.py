"""Registered outputs that wait for execution."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planner.outputs import Output


class RegisteredOutputs:
    """Outputs registered by the threads of a program. A thread takes its own outputs, or all if it has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: list[tuple[threading.Thread, Output]] = []

    def add(self, outputs: Sequence[Output]) -> None:
        """Register outputs of the calling thread."""
        with self._lock:
            self._outputs += [(threading.current_thread(), output) for output in outputs]

    def peek(self) -> list[Output]:
        """Return the outputs that the calling thread would take."""
        with self._lock:
            return [output for _, output in self._chosen()]

    def take(self) -> list[Output]:
        """Remove and return the outputs of the calling thread, or all if it has none."""
        with self._lock:
            chosen = self._chosen()
            ids = set(map(id, chosen))
            self._outputs = [entry for entry in self._outputs if id(entry) not in ids]
            return [output for _, output in chosen]

    def _chosen(self) -> list[tuple[threading.Thread, Output]]:
        own = [entry for entry in self._outputs if entry[0] is threading.current_thread()]
        return own or list(self._outputs)
